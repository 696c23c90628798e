"""Two tensor-parallel ranks of which one fails, crashes or is slow: what the scheduler hears of it.

Outputs of ranks are aggregated by vLLM's own KVOutputAggregator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator

from sim.fabric.verdicts import WorkRequestItem
from sim.network import MessageInFlight
from sim.run import RunResult, TestBed, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.units import MS, SECOND
from sim.verdict import Delay, Fail, Verdict
from sim.workload import Segment

TWO_RANKS = {"tp_size": "2", "executor": "multi-process", "quiet_phase_s": "0"}
NOTIFY_PORT = 61005
FIRST = (InlineRequest("first", (Segment(1, 300),), 8),)
BOTH = (*FIRST, InlineRequest("second", (Segment(2, 300),), 8, arrival_s=1.0))


def run_with(
    requests: tuple[InlineRequest, ...], prepare: Callable[[TestBed], None], **settings: str
) -> RunResult:
    scenario = Scenario(workload=InlineWorkload(requests))
    return run(with_settings(scenario, {**TWO_RANKS, **settings}), prepare=prepare)


def oracles_of(result: RunResult) -> set[str]:
    """Without those that look at what is left over, for which there is no quiet phase here."""
    return {v.oracle for v in result.outcome.violations} - {"leak", "release-once"}


class FailReadsOfRank:
    """Reads that a consumer's rank posts after some time fail."""

    def __init__(self, bed: TestBed, rank: int, after_ns: int) -> None:
        self._bed, self._rank, self._after_ns = bed, rank, after_ns

    def judge(self, item: Any) -> Verdict | None:
        if not isinstance(item, WorkRequestItem) or self._bed.kernel.now_ns < self._after_ns:
            return None
        return Fail("RETRY_EXC", "") if f":tp{self._rank}:" in item.pair.initiator else None


def fail_second_on(rank: int) -> Callable[[TestBed], None]:
    def prepare(bed: TestBed) -> None:
        bed.world.fabric.verdicts.add(FailReadsOfRank(bed, rank, after_ns=SECOND))

    return prepare


@pytest.fixture
def aggregations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[set[int]], set[int]]]:
    """Blocks that were reported as not loaded: by each rank, and to the scheduler."""
    seen: list[tuple[list[set[int]], set[int]]] = []
    original = KVOutputAggregator.aggregate

    def invalid(output: Any) -> set[int]:
        reported = output.kv_connector_output if output is not None else None
        return set(reported.invalid_block_ids) if reported is not None else set()

    def aggregate(self: Any, outputs: Any, **kwargs: Any) -> Any:
        by_rank = [invalid(output) for output in outputs]
        result = original(self, outputs, **kwargs)
        if any(by_rank):
            seen.append((by_rank, invalid(result)))
        return result

    monkeypatch.setattr(KVOutputAggregator, "aggregate", aggregate)
    return seen


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("policy", "scheduling", "ends", "oracles"),
    [
        ("fail", "true", {"length": 1, "error": 1}, set()),
        ("fail", "false", {"length": 1, "error": 1}, set()),
        ("recompute", "false", {"length": 2}, set()),
        # The token of the step under way is delivered; see docs/findings.md.
        ("recompute", "true", {"length": 2}, {"same-output"}),
    ],
)
def test_a_read_that_fails_on_one_rank_has_failed(
    aggregations: list[Any],
    rank: int,
    policy: str,
    scheduling: str,
    ends: dict[str, int],
    oracles: set[str],
) -> None:
    """The other rank has its share, and that is of no use: the scheduler gets the union."""
    result = run_with(
        BOTH,
        fail_second_on(rank),
        kv_load_failure_policy=policy,
        async_scheduling=scheduling,
    )
    ((by_rank, told),) = aggregations
    assert by_rank[1 - rank] == set()
    assert by_rank[rank] == told != set()
    assert result.outcome.requests == {"total": 2, **ends, "unfinished": 0}
    assert oracles_of(result) == oracles


class DelayReleaseTo:
    """The release that goes to one rank of the producer is ``by_ns`` late."""

    def __init__(self, rank: int, by_ns: int) -> None:
        self._port, self._verdict = NOTIFY_PORT + rank, Delay(by_ns)

    def judge(self, item: Any) -> Verdict | None:
        if isinstance(item, MessageInFlight) and item.target_port == self._port:
            return self._verdict
        return None


@pytest.mark.parametrize("rank", [0, 1])
def test_blocks_go_when_the_last_rank_has_released_them(rank: int) -> None:
    """One rank reports long before the other; the scheduler hears of it once, at the end."""

    def prepare(bed: TestBed) -> None:
        bed.world.network.verdicts.add(DelayReleaseTo(rank, 2 * SECOND))

    records = run_with(BOTH[:1], prepare, quiet_phase_s="10").log.records
    mine = [r for r in records if r.fields.get("request") == "first-p0"]
    sent = {r.fields["rank"]: r.time_ns for r in mine if r.kind == "sending-finished"}
    (freed_ns,) = [r.time_ns for r in mine if r.kind == "blocks-freed"]
    assert sent[rank] - sent[1 - rank] > 1.9 * SECOND
    assert 0 <= freed_ns - sent[rank] < 10 * MS


@pytest.mark.parametrize(("side", "at_ms"), [("producers", 1_005), ("consumers", 1_030)])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_crashes_ends_its_engine(side: str, at_ms: int, rank: int) -> None:
    """The core notices, and what the engine had under way ends with it."""

    def prepare(bed: TestBed) -> None:
        engine = getattr(bed, side)[0]
        bed.kernel.call_later(at_ms * MS, engine.crash_rank, rank)

    result = run_with(BOTH, prepare)
    (died,) = [r for r in result.log.records if r.kind == "engine-died"]
    assert died.fields["reason"] == f"the process of rank {rank} crashed"
    ends = {"total": 2, "length": 1, "engine-died": 1, "unfinished": 0}
    assert result.outcome.requests == ends
    assert oracles_of(result) == set()


@pytest.mark.parametrize("side", ["producers", "consumers"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_stops_for_a_while_holds_up_the_other(side: str, rank: int) -> None:
    """The pass needs both, so the answer is late by as much, and right."""

    def prepare(bed: TestBed) -> None:
        def pause() -> None:
            process = getattr(bed, side)[0].processes[1 + rank].process
            bed.kernel.pause(process)
            bed.kernel.call_later(3 * SECOND, bed.kernel.resume, process)

        bed.kernel.call_later(3 * MS, pause)

    result = run_with(FIRST, prepare, quiet_phase_s="10")
    assert result.outcome.violations == []
    (ended_ns, *_epilogue) = [r.time_ns for r in result.log.records if r.kind == "request-ended"]
    assert 3 * SECOND < ended_ns < 4 * SECOND
