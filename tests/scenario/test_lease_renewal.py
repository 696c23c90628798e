"""Leases that a consumer renews: kept while it is busy, and ended by themselves when it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults.running import run
from faults.schedule import parse, with_faults
from sim.outcome import Outcome
from sim.probes import Probe, StepTimes
from sim.scenario import load, loads, with_settings

SCENARIOS = Path(__file__).parents[2] / "faults" / "scenarios"


class Watcher(Probe):
    """Notes steps, ended loads, and when a producer let go of a request's blocks."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.began_ns = 0
        self.first_tokens: dict[str, int] = {}
        self.loads: list[tuple[str, bool]] = []
        self.freed_s: dict[str, float] = {}

    def workload_began(self) -> None:
        self.began_ns = self.now_ns

    def step_done(self, step: StepTimes) -> None:
        self.now_ns = step.end_ns

    def note_first_passes(self, requests: list[tuple[str, int, int]], **_: Any) -> None:
        """How many tokens the first pass of each leg computes; one that was displaced and is
        computed again has another."""
        for leg, start, end in requests:
            self.first_tokens.setdefault(leg, end - start)

    def receiving_finished(self, node: str, rank: int, request_id: str, *, failed: bool) -> None:
        self.loads.append((request_id, failed))

    def blocks_freed(self, node: str, request_id: str) -> None:
        self.freed_s[request_id] = (self.now_ns - self.began_ns) / 1e9


def outcome_of(
    name: str, *faults: str, settings: Mapping[str, str] | None = None
) -> tuple[Outcome, Watcher]:
    scenario = with_settings(load(SCENARIOS / f"{name}.yaml"), settings or {})
    decoded: list[Any] = [msgspec.to_builtins(parse(fault)) for fault in faults]
    watcher = Watcher()
    result = run(msgspec.structs.replace(scenario, faults=tuple(decoded)), probe=watcher)
    for record in result.result.log.records:
        if record.kind == "forward-began":
            watcher.note_first_passes(**record.fields)
    return result.result.outcome, watcher


def test_a_request_in_the_queue_of_a_busy_consumer_keeps_its_blocks() -> None:
    """It waits for more than twice defer_timeout, and is answered without a prefill there."""
    outcome, seen = outcome_of("busy-consumer")
    assert outcome.violations == []
    assert outcome.requests == {"total": 6, "length": 6, "unfinished": 0}
    assert all(not failed for _, failed in seen.loads)
    assert "waits-d0" in dict(seen.loads)
    assert (seen.first_tokens["waits-p0"], seen.first_tokens["waits-d0"]) == (512, 1)
    assert seen.freed_s["waits-p0"] > 7


def test_it_is_the_renewals_that_keep_them() -> None:
    """With the same consumer, which stops renewing after half a second, the loads fail."""
    outcome, seen = outcome_of("busy-consumer", settings={"extra_config.renewal_timeout": "0.5"})
    assert outcome.violations == []
    assert outcome.requests["error"] >= 1
    assert ("waits-d0", True) in seen.loads
    assert seen.freed_s["waits-p0"] < 4


SLOW_READ = """
# What is read lands four seconds late, four times as long as the producer holds blocks unasked.
schema_version: 1
model: llama
connector: hybrid
extra_config: {defer_timeout: 1, transfer_timeout: 20}
quiet_phase_s: 10
workload:
  kind: inline
  requests:
    - {request_id: slow, prompt: [[1, 100]], max_tokens: 2}
"""


@pytest.mark.requirement("S2")
@pytest.mark.parametrize(("renewal_timeout", "is_served"), [("600", True), ("0.1", False)])
def test_blocks_are_kept_while_they_are_read(renewal_timeout: str, is_served: bool) -> None:
    """By renewals: without them the read is not confirmed, and its request fails."""
    scenario = with_settings(loads(SLOW_READ), {"extra_config.renewal_timeout": renewal_timeout})
    watcher = Watcher()
    late = with_faults(scenario, ["late-landing:request=slow,by_s=4"])
    outcome = run(late, probe=watcher).result.outcome
    assert outcome.violations == []
    assert outcome.requests.get("length", 0) == int(is_served)
    assert [failed for name, failed in watcher.loads if name == "slow-d0"] == [not is_served]


def test_vllms_connector_serves_the_same_request_from_foreign_blocks() -> None:
    """What the lease is for."""
    outcome, _ = outcome_of("busy-consumer", settings={"connector": "moriio"})
    assert {"wrong-bytes", "same-output"} <= {v.oracle for v in outcome.violations}


def test_a_lease_ends_by_itself_when_its_consumer_is_gone() -> None:
    """Renewed until the crash after two seconds, for three more, and then the memory is free."""
    outcome, seen = outcome_of("busy-consumer", "crash:node=d0,at_s=2,for_s=20")
    assert outcome.violations == []
    assert outcome.requests["unfinished"] == 0
    assert 4 < seen.freed_s["waits-p0"] < 5.1


def test_a_request_that_the_router_holds_for_too_long_fails() -> None:
    """Nobody renews what no consumer has heard of: it fails, and nothing wrong is served."""
    outcome, seen = outcome_of("late-hand-off", settings={"connector": "hybrid"})
    assert outcome.violations == []
    assert outcome.requests == {"total": 6, "length": 5, "error": 1, "unfinished": 0}
    assert ("late-d0", True) in seen.loads


@pytest.mark.parametrize(
    "fault",
    [
        "message-dropped:at_s=1,count=1",
        "message-delayed:at_s=1,count=2",
        "message-duplicated:at_s=1,count=2",
    ],
)
def test_a_renewal_that_goes_astray_costs_nothing(fault: str) -> None:
    """One lost, or two late or doubled: the next comes in time."""
    outcome, seen = outcome_of("busy-consumer", fault)
    assert outcome.violations == []
    assert outcome.requests == {"total": 6, "length": 6, "unfinished": 0}
    assert (seen.first_tokens["waits-p0"], seen.first_tokens["waits-d0"]) == (512, 1)


@pytest.mark.soak
def test_two_ranks_renew_through_vllms_aggregator() -> None:
    """Each rank reports; the scheduler takes what they report together."""
    outcome, seen = outcome_of(
        "busy-consumer",
        settings={"engine": "{tp_size: 2, executor: multi-process, max_num_seqs: 1}"},
    )
    assert outcome.violations == []
    assert outcome.requests == {"total": 6, "length": 6, "unfinished": 0}
    assert all(not failed for _, failed in seen.loads)


def test_a_consumer_that_stands_still_fails_what_it_did_not_renew() -> None:
    """Stopped for longer than the lease, it finds the blocks gone, and uses none of them."""
    outcome, seen = outcome_of("busy-consumer", "pause:node=d0,at_s=1,for_s=5")
    assert outcome.violations == []
    assert ("waits-d0", True) in seen.loads
    assert seen.freed_s["waits-p0"] < 5
