"""A load that fails is told with its cause, where vLLM hears of it, and within its deadline.

In both ways to load: ``async`` fails the request alone, through ``failed_recving``; ``sync`` names
the blocks of a model with one cache group, and fails the step of one with several. Times are
virtual, so a deadline is exact but for the loader's look at its clock. ``async`` is in the soak
runs; between processes it is in every run (``hw_tests/process``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from test_connector_safe_reads import OldProducer
from vllm.v1.core.sched.scheduler import Scheduler

from faults.running import run
from faults.schedule import with_faults
from sim.engine.connectors import CONNECTORS
from sim.kernel.log import Record
from sim.outcome import RunResult
from sim.probes import Probe
from sim.request_ids import logical_id
from sim.scenario import Scenario, UniformWorkload, with_settings
from tests.connector_events import Events, logged

TIMEOUT_S = 2.0
SLACK_S = 0.05
"""What the loader's looks and a step of the engine add to a deadline."""
AT_ONCE_S = 0.6
"""For what needs no deadline: the peer answers, or has started again within its port's pause."""
BASE = Scenario(
    connector="hybrid",
    workload=UniformWorkload(
        requests=3, prompt_tokens=(200, 200), output_tokens=(4, 4), interval_ms=50
    ),
    quiet_phase_s=60,
)


@dataclass(frozen=True)
class Case:
    """A fault, and what is told of the first request that it costs.

    Args:
        name: of the case.
        faults: of the scenario.
        cause: of docs/connector.md; None if no load fails.
        within_s: of the order of the load.
        request: that fails first; the one before it has made the producer known.
        for_ever: the two engines never serve each other.
        probe: what else has to be done to them.
    """

    name: str
    faults: Sequence[str]
    cause: str | None
    within_s: float = TIMEOUT_S + SLACK_S
    request: str = "req-0"
    for_ever: bool = False
    probe: Any = None


KNOWN = "phase=queued_at_d,nth=2"
CASES = (
    Case("killed", ["crash:node=p0,phase=queued_at_d,for_s=8"], "no-answer"),
    Case("killed-known", [f"crash:node=p0,{KNOWN},for_s=8"], "no-answer", request="req-1"),
    Case("killed-in-the-read", ["crash:node=p0,phase=read_posted,for_s=8"], "no-answer"),
    Case("stopped", [f"pause:node=p0,{KNOWN},for_s=8"], "not-confirmed", request="req-1"),
    Case("stopped-after-the-read", ["pause:node=p0,phase=read_done,for_s=8"], "not-confirmed"),
    Case("deregistered", [f"region-invalid:node=p0,{KNOWN},for_s=8"], "read-failed", AT_ONCE_S,
         request="req-1"),
    Case("deregistered-in-the-read", ["region-invalid:node=p0,phase=read_posted,for_s=8"],
         "read-failed", AT_ONCE_S),
    Case("messages-dropped", ["message-dropped:node=p0,count=null,for_s=9"], "no-answer"),
    Case("messages-late", ["message-delayed:node=p0,count=null,by_ms=6000,for_s=9"], "no-answer"),
    Case("restarted", ["crash:node=p0,phase=queued_at_d,for_s=0.01"], "mismatch", AT_ONCE_S),
    Case("restarted-known", [f"crash:node=p0,{KNOWN},for_s=0.01"], "mismatch", AT_ONCE_S,
         request="req-1"),
    Case("other-model", ["disagreement:node=p0,model=deepseek-mla"], "bad-offer", AT_ONCE_S,
         for_ever=True),
    Case("larger-blocks", ["disagreement:node=p0,block_size=32"], "bad-offer", AT_ONCE_S,
         for_ever=True),
    Case("smaller-blocks", ["disagreement:node=p0,block_size=8"], "mismatch", AT_ONCE_S,
         for_ever=True),
    Case("other-version", [], "bad-offer", AT_ONCE_S, for_ever=True, probe=OldProducer),
    Case("garbage", ["malformed-message:node=p0"], None),
)  # fmt: skip


@dataclass
class Told:
    """What vLLM's schedulers of consumers heard of failed loads."""

    requests: set[str] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    update = Scheduler.update_from_output

    def watched(self: Any, scheduler_output: Any, output: Any) -> Any:
        if (report := output.kv_connector_output) is not None:
            found.requests |= {logical_id(name) for name in report.failed_recving or ()}
            found.blocks |= set(report.invalid_block_ids or ())
        return update(self, scheduler_output, output)

    monkeypatch.setattr(Scheduler, "update_from_output", watched)
    return found


def serve(case: Case, model: str, mode: str) -> tuple[RunResult, list[dict[str, Any]]]:
    """The run, and what was logged of loads that failed."""
    times = {"transfer_timeout": TIMEOUT_S, "control_timeout": 0.25, "fence_timeout": 2}
    settings = {"load_mode": mode, "defer_timeout": 6, **times}
    scenario = with_settings(BASE, {"model": model, "kv_load_failure_policy": "fail"})
    scenario = msgspec.structs.replace(scenario, extra_config=settings)
    probe = case.probe() if case.probe else Probe()
    with logged(logging.INFO) as events:
        result = run(with_faults(scenario, case.faults), probe=probe).result
    failed = [event for event in events if event["event"] in ("load-failed", "offer-refused")]
    return result, failed


@pytest.mark.requirement("R16", "S6")
@pytest.mark.parametrize("mode", [pytest.param("async", marks=pytest.mark.soak), "sync"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_failed_load_is_told_with_its_cause_in_time(case: Case, mode: str, told: Told) -> None:
    """Of one cache group: the request fails, no other does for it, and the engine lives."""
    result, failed = serve(case, "llama", mode)
    kinds = {violation.evidence["kind"] for violation in result.outcome.violations}
    assert kinds == ({"not-recovered"} if case.for_ever else set())
    assert not [record for record in result.log.records if _died(record, "d0")]
    if case.cause is None:
        assert (failed, result.outcome.requests["length"]) == ([], 3)
        return
    first = failed[0]
    assert (logical_id(first["request"]), first["cause"]) == (case.request, case.cause)
    for event in failed:
        assert event["cause"] == case.cause, event
        assert event.get("seconds", 0) <= case.within_s, event
    assert result.outcome.requests["error"] == len(_of_workload(failed))
    is_refused = first["event"] == "offer-refused"  # which is answered as an asynchronous load
    assert (case.request in told.requests) == (is_refused or mode == "async")
    assert bool(told.blocks) == (not is_refused)


@pytest.mark.requirement("R16")
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name in ("killed", "stopped", "deregistered", "restarted")],
    ids=lambda case: case.name,
)
def test_a_failed_load_ends_the_step_of_several_groups_in_time(case: Case, told: Told) -> None:
    """Of the synchronous kind: the cause is in the log, the engine says what it ends of, and serves
    when it has been started again."""
    result, failed = serve(case, "kimi-linear", "sync")
    (first,) = failed
    assert (logical_id(first["request"]), first["cause"]) == (case.request, case.cause)
    assert first["seconds"] <= case.within_s
    (death,) = [record for record in result.log.records if _died(record, "d0")]
    assert f"{CONNECTORS['hybrid'].step_failure} {first['request']}" in death.fields["reason"]
    assert told == Told()
    kinds = {violation.evidence["kind"] for violation in result.outcome.violations}
    assert kinds == {"engine-died"}


def _of_workload(failed: Events) -> Events:
    return [event for event in failed if logical_id(event["request"]).startswith("req-")]


def _died(record: Record, node: str) -> bool:
    return record.kind == "engine-died" and record.fields["node"] == node
