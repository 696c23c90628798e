"""What docs/findings.md says of vLLM's connectors, as named and expected findings.

They are pinned by signature: which rules break, and of which kind. When a newer vLLM no longer
fails in one of these ways, its test turns red, and the page has to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from faults.cli.options import RunOptions, build_scenario
from faults.running import run as run_with_faults
from sim.fabric.verdicts import WorkRequestItem
from sim.outcome import Outcome
from sim.run import TestBed, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.units import MS
from sim.verdict import Fail, Verdict
from sim.workload import Segment

SHIPPED: Mapping[str, set[tuple[str, str | None]]] = {
    "late-hand-off": {
        ("wrong-bytes", None),
        ("same-output", None),
        ("use-after-free", "stale-read"),
    },
    "retried-hand-off": {
        ("wrong-bytes", None),
        ("same-output", None),
        ("use-after-free", "stale-read"),
        ("use-after-free", "shared-block"),
    },
    "retried-elsewhere": {("wrong-bytes", None), ("use-after-free", "stale-read")},
    "abandoned-hand-off": {("leak", None), ("release-once", "never-released")},
    "slow-read": {
        ("liveness", "engine-died"),
        ("liveness", "not-recovered"),
        ("leak", None),
        ("release-once", "never-released"),
    },
    "rewritten-prefix": set(),
    "xgmi-waits": set(),
    "write-preempted": {("wrong-bytes", None), ("same-output", None)},
    "write-abandoned-load": {("leak", None)},
    "write-first-contact": {
        ("liveness", "not-ended"),
        ("leak", None),
        ("release-once", "never-released"),
    },
    "write-retried": {
        ("liveness", "not-ended"),
        ("leak", None),
        ("release-once", "never-released"),
    },
    "write-failed": {("liveness", "not-ended"), ("leak", None)},
    "example-in-chunks": {("liveness", "engine-died"), ("liveness", "not-recovered")},
    "example-two-ranks": {("wrong-bytes", None), ("same-output", None)},
    "example-missing-file": {("liveness", "engine-died"), ("liveness", "not-recovered")},
    "window-edge": {("wrong-bytes", None), ("same-output", None)},
    "whole-blocks-twice": {("wrong-bytes", None), ("same-output", None)},
    "state-copied-over-read": {("wrong-bytes", None), ("same-output", None)},
    "drafts-over-read": {("wrong-bytes", None), ("same-output", None)},
    "read-before-drafter": {("wrong-bytes", None)},
    "drafter-row-of-another": {("wrong-bytes", "drafter-row")},
}
# The change to each scenario, as options of faultlab run, with which it passes.
COUNTERPARTS: Mapping[str, tuple[str, ...]] = {
    "late-hand-off": ("router.holds=[]",),
    "retried-hand-off": (
        "router.retries=[{request: twice, after_s: 0.1, same_transfer_id: false}]",
    ),
    "retried-elsewhere": ("router.retries=[]",),
    "abandoned-hand-off": ("executor=multi-process",),
    "slow-read": ("extra_config.transfer_timeout=30",),
    "window-edge": ("workload.requests=[{request_id: edge, prompt: [[1, 208]], max_tokens: 4}]",),
    "whole-blocks-twice": ("enable_prefix_caching=false",),
    "state-copied-over-read": ("async_scheduling=false",),
    "drafts-over-read": ("draft_us=0",),
    "read-before-drafter": ("draft_us=200",),
    "drafter-row-of-another": ("topology.colocated=true",),
    "write-preempted": ("async_scheduling=false",),
    "write-abandoned-load": ("router.aborts=[{request: abandoned, on_phase: decode}]",),
    "write-first-contact": ("topology.consumers=1",),
    "write-retried": (
        "router.retries=[{request: twice, after_s: 0.006, same_transfer_id: false}]",
    ),
    "write-failed": ("faults=[]",),
    "example-in-chunks": ("max_num_batched_tokens=1024",),
    "example-two-ranks": ("tp_size=1",),
    "example-missing-file": ("enable_prefix_caching=true",),
}


def kinds(outcome: Outcome) -> set[tuple[str, str | None]]:
    return {(v.oracle, v.evidence.get("kind")) for v in outcome.violations}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_finding_has_its_signature(name: str) -> None:
    """``faultlab run NAME`` fails in the way that the page describes."""
    scenario = build_scenario(RunOptions(scenario=name))
    assert kinds(run_with_faults(scenario).result.outcome) == SHIPPED[name]


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_what_the_page_names_as_the_cause_is_the_cause(name: str) -> None:
    """With the one change that is named in the scenario's file, nothing is broken."""
    options = RunOptions(scenario=name, settings=COUNTERPARTS[name])
    assert kinds(run(build_scenario(options)).outcome) == set()


def test_a_prefix_that_is_already_there_is_written_again() -> None:
    """Sixteen blocks in four layers, with equal bytes; that is counted and no violation."""
    outcome = run(build_scenario(RunOptions(scenario="rewritten-prefix"))).outcome
    assert outcome.passed
    assert outcome.notes["shared_blocks_rewritten_equally"] == 16 * 4


# ------------------------------------------------------- those that need a fault


class FailNth:
    """One chain of work requests, the ``nth`` to land, ends with a transport error."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def judge(self, item: Any) -> Verdict | None:
        if not isinstance(item, WorkRequestItem):
            return None
        self._left -= 1
        return Fail("RETRY_EXC", "") if self._left == 0 else None


def fail_read(nth: int) -> Callable[[TestBed], None]:
    return lambda bed: bed.world.fabric.verdicts.add(FailNth(nth))


def crash_producer(at_ns: int) -> Callable[[TestBed], None]:
    def prepare(bed: TestBed) -> None:
        bed.kernel.call_later(at_ns, bed.producers[0].crash)

    return prepare


def request(name: str, *contents: tuple[int, int], out: int, at_s: float = 0.0) -> InlineRequest:
    return InlineRequest(name, tuple(Segment(*c) for c in contents), max_tokens=out, arrival_s=at_s)


def scenario(*requests: InlineRequest, **settings: str) -> Scenario:
    plain = Scenario(workload=InlineWorkload(requests), quiet_phase_s=10.0, max_virtual_s=100.0)
    return with_settings(plain, settings)


def test_one_failed_read_cuts_a_peer_off_for_good() -> None:
    """The queue pair stays in error; the connector keeps the session and every later read fails."""
    outcome = run(
        scenario(
            request("fails", (1, 300), out=8),
            *(request(f"later-{i}", (2 + i, 300), out=8, at_s=1.0 + i) for i in range(3)),
        ),
        prepare=fail_read(1),
    ).outcome
    assert outcome.requests["error"] == 4
    assert kinds(outcome) == {("liveness", "not-recovered")}


def test_a_producer_that_restarts_on_its_address_is_never_spoken_to_again() -> None:
    """The consumer took part in one handshake with that address and makes no other."""
    outcome = run(
        scenario(request("before", (1, 300), out=8), request("open", (2, 300), out=8, at_s=1.0)),
        prepare=crash_producer(1_000 * MS),
    ).outcome
    assert outcome.requests["length"] == 1
    assert kinds(outcome) == {("liveness", "not-recovered")}


def test_a_producer_that_is_dead_at_first_contact_stops_the_consumer() -> None:
    """The handshake has no time-out and the step waits for it, so other producers' requests stop
    as well."""
    outcome = run(
        with_settings(
            scenario(
                request("lost", (1, 300), out=8),
                request("innocent", (2, 300), out=400, at_s=0.2),
            ),
            {"topology.producers": "2", "router.holds": "[{request: lost, seconds: 1}]"},
        ),
        prepare=crash_producer(500 * MS),
    ).outcome
    assert outcome.requests["unfinished"] == 2
    assert {("bounded-waiting", "stuck-step"), ("liveness", "not-ended")} <= kinds(outcome)


PREFIX = (1, 256)
TOGETHER = (
    request("decoding", PREFIX, (2, 64), out=100),
    request("fails", PREFIX, (3, 64), out=20, at_s=0.2),
)
FIRST_OF_SECOND = 5  # the first request's reads are the four before, one a layer


def test_a_failed_read_fails_whoever_shares_the_prefix() -> None:
    """Blocks that were there before the read are reported as not loaded along with the rest."""
    outcome = run(scenario(*TOGETHER), prepare=fail_read(FIRST_OF_SECOND)).outcome
    assert outcome.requests == {"total": 2, "error": 2, "unfinished": 0}


RECOMPUTE = {"kv_load_failure_policy": "recompute"}


@pytest.mark.parametrize(
    ("requests", "nth", "wrong"),
    [
        ((request("fails", (1, 300), out=8),), 1, ["fails", "epilogue"]),
        (TOGETHER, FIRST_OF_SECOND, ["fails", "decoding", "epilogue"]),
    ],
    ids=["alone", "with-a-shared-prefix"],
)
def test_recomputing_delivers_a_token_from_the_load_that_failed(
    requests: tuple[InlineRequest, ...], nth: int, wrong: list[str]
) -> None:
    """With asynchronous scheduling the next step is under way already, and is not dropped."""
    outcome = run(scenario(*requests, **RECOMPUTE), prepare=fail_read(nth)).outcome
    assert kinds(outcome) == {("same-output", None)}
    assert [v.request_id for v in outcome.violations] == wrong
    synchronous = scenario(*requests, **RECOMPUTE, async_scheduling="false")
    assert kinds(run(synchronous, prepare=fail_read(nth)).outcome) == set()


def test_a_recomputed_request_of_the_maximum_length_never_ends() -> None:
    """The placeholder of the dropped step is never taken back, so the last token of a request
    that fills the model's length is never scheduled."""
    longest = request("longest", (1, 280), out=40)  # 320 tokens, the length the engines get
    outcome = run(scenario(longest, **RECOMPUTE), prepare=fail_read(1)).outcome
    assert {("liveness", "not-ended"), ("leak", None)} <= kinds(outcome)
    assert outcome.requests["unfinished"] == 1
