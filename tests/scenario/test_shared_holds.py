"""Decode legs that share one hold of a producer: each gets its bytes, and the producer its blocks
when the last one is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faults.running import run as faulted_run
from sim.probes import Probe
from sim.request_ids import leg_of
from sim.run import run
from sim.scenario import Scenario, UniformWorkload, loads, with_settings
from sim.testbed import TestBed
from sim.units import MS, SECOND

GAP_S = 0.5
"""For which the hold of a sample is kept for others: control_timeout."""
LEGS = ["req-0-d0", "req-0-d1", "req-0-d2"]


class Seen(Probe):
    """When the legs of ``req-0`` and its prefill got blocks, were loaded, and gave blocks back."""

    def __init__(self) -> None:
        self.bed: Any = None
        self.held_ns: dict[str, int] = {}
        self.loaded_ns: dict[str, int] = {}
        self.failed: list[str] = []
        self.freed_ns: dict[str, list[int]] = {}
        self.died: list[str] = []
        self.given_up: list[str] = []

    def engine_died(self, node: str, reason: str, **how: Any) -> None:
        self.died.append(node)

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        self.held_ns.setdefault(leg_of(request_id), self.bed.kernel.now_ns)

    def blocks_freed(self, node: str, request_id: str) -> None:
        self.freed_ns.setdefault(leg_of(request_id), []).append(self.bed.kernel.now_ns)

    def receiving_finished(self, node: str, rank: int, request_id: str, *, failed: bool) -> None:
        self.loaded_ns[leg_of(request_id)] = self.bed.kernel.now_ns
        if failed:
            self.failed.append(leg_of(request_id))

    def came_back_s(self, since_ns: int) -> float:
        """When the producer had its blocks back; it got them once."""
        (freed_ns,) = self.freed_ns["req-0-p0"]
        return (freed_ns - since_ns) / SECOND


def serve(
    model: str,
    samples: int,
    gap_s: float,
    *,
    meanwhile: Callable[[TestBed, Seen], None] | None = None,
    **settings: str,
) -> tuple[Any, Seen]:
    """One prompt of a few blocks, of which ``samples`` are wanted, each ``gap_s`` after another."""
    seen = Seen()
    workload = UniformWorkload(
        requests=1, prompt_tokens=(1500, 1500), output_tokens=(6, 6), interval_ms=20.0
    )
    scenario = with_settings(
        Scenario(workload=workload, quiet_phase_s=70.0),
        {"connector": "hybrid", "model": model, **settings},
    )

    def prepare(bed: TestBed) -> None:
        seen.bed = bed
        bed.kernel.call_later(5 * MS, ask, bed)

    def ask(bed: TestBed) -> None:
        bed.router.ask_for("req-0", samples, gap_s)
        if meanwhile is not None:
            meanwhile(bed, seen)

    return run(scenario, prepare=prepare, probe=seen).outcome, seen


@pytest.mark.requirement("R14", "R17", "S3")
@pytest.mark.parametrize(
    ("model", "mode", "samples", "gap_s"),
    [
        ("glm-flash", "async", 3, 0.2),
        ("glm-flash", "sync", 2, 0.2),
        ("glm-flash", "sync", 3, 0.0),
        ("llama", "async", 3, 0.0),
        ("llama", "sync", 2, 0.2),
    ],
)
def test_samples_are_served_from_one_hold(
    model: str, mode: str, samples: int, gap_s: float
) -> None:
    """Together, or when the one before has been answered; no load is lost, no byte is wrong."""
    outcome, seen = serve(model, samples, gap_s, **{"extra_config.load_mode": mode})
    assert outcome.violations == []
    assert outcome.requests == {"total": 1, "length": 1, "unfinished": 0}
    assert (seen.failed, seen.died) == ([], [])
    legs = LEGS[:samples]
    if mode == "async" and model == "glm-flash":
        assert sorted(leg for leg in seen.loaded_ns if leg in LEGS) == legs
    last_ns = max(seen.held_ns[leg] for leg in legs)
    assert GAP_S <= seen.came_back_s(last_ns) < GAP_S + 0.1


@pytest.mark.requirement("R16", "S3")
def test_a_sample_that_comes_too_late_is_a_load_error() -> None:
    """The hold was released half a second after the one before; nothing else is disturbed."""
    outcome, seen = serve("glm-flash", 2, 1.0)
    assert outcome.violations == []
    assert outcome.requests == {"total": 1, "error": 1, "unfinished": 0}
    assert seen.failed == ["req-0-d1"]
    assert seen.came_back_s(seen.held_ns["req-0-d0"]) < GAP_S + 0.1


SLOW_LOAD = """
# The first sample's load takes longer than its hold would be kept for the second, which comes while
# the step waits for it, and cannot be told of before the next.
schema_version: 1
model: glm-flash
connector: hybrid
extra_config: {load_mode: sync}
workload:
  kind: inline
  requests:
    - {request_id: req-0, prompt: [[1, 20000]], max_tokens: 2}
faults:
- {kind: bandwidth-reduced, target: {node: d0}, for_s: 60, fraction: 0.00003}
- {kind: several-samples, when: {phase: prefill}, target: {request: req-0}, samples: 2, apart_ms: 5}
"""


@pytest.mark.requirement("R14", "R17")
def test_a_sample_that_waited_behind_a_long_load_is_served() -> None:
    outcome = faulted_run(loads(SLOW_LOAD)).result.outcome
    assert outcome.violations == []
    assert outcome.requests == {"total": 1, "length": 1, "unfinished": 0}


def give_up_one(leg_id: str, is_moment: Callable[[Seen], bool]) -> Callable[[TestBed, Seen], None]:
    """At some moment vLLM's front end aborts one of the samples, as when it has met a stop string;
    the answer consists of the others."""

    def look(bed: TestBed, seen: Seen) -> None:
        leg = bed.router._legs.get(leg_id)
        if leg is None or not is_moment(seen):
            bed.kernel.call_later(MS // 20, look, bed, seen)
            return
        del bed.router._legs[leg_id]
        leg.request.legs.remove(leg)
        leg.request.missing -= 1
        seen.given_up.append(leg_id)
        leg.engine.abort([leg.request_id])

    return look


MOMENTS: dict[str, Callable[[Seen], bool]] = {
    "before its read": lambda seen: "req-0-d1" not in seen.held_ns,
    "during its read": lambda seen: "req-0-d1" in seen.held_ns,
    "after its read": lambda seen: "req-0-d1" in seen.loaded_ns,
}


@pytest.mark.requirement("R17", "S5")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("model", ["glm-flash", "llama"])
def test_a_sample_that_is_given_up_takes_nothing_from_the_others(model: str, moment: str) -> None:
    """Its blocks and the producer's come back, and the others are loaded and answered."""
    give_up = give_up_one("req-0-d1", MOMENTS[moment])
    outcome, seen = serve(model, 3, 0.001, meanwhile=give_up)
    assert outcome.violations == []
    assert outcome.requests == {"total": 1, "length": 1, "unfinished": 0}
    assert (seen.failed, seen.given_up) == ([], ["req-0-d1"])
    was_loaded = "req-0-d1" in seen.loaded_ns
    assert was_loaded is (moment != "before its read")
    assert GAP_S <= seen.came_back_s(seen.held_ns["req-0-d2"]) < GAP_S + 0.1


@pytest.mark.requirement("R14", "R17")
def test_a_sample_that_is_preempted_goes_on_by_itself() -> None:
    """It computes again what it had loaded, and the hold is released once for all."""
    outcome, seen = serve(
        "llama",
        3,
        0.0,
        **{
            "engine.num_blocks": "50",
            "workload.prompt_tokens": "[200, 200]",
            "workload.output_tokens": "[90, 90]",
        },
    )
    assert outcome.violations == []
    assert outcome.requests == {"total": 1, "length": 1, "unfinished": 0}
    assert any(len(seen.freed_ns[leg]) > 1 for leg in LEGS), "nothing was preempted"
    assert seen.came_back_s(seen.held_ns["req-0-d0"]) < GAP_S + 0.1


@pytest.mark.requirement("R16", "S1", "S3")
def test_a_lease_that_ends_before_a_sample_comes_is_a_load_error() -> None:
    """Nobody renews it between two samples."""
    outcome, seen = serve("glm-flash", 2, 0.45, **{"extra_config.defer_timeout": "0.2"})
    assert outcome.violations == []
    assert outcome.requests == {"total": 1, "error": 1, "unfinished": 0}
    assert seen.failed == ["req-0-d1"]
    assert 0.2 <= seen.came_back_s(seen.held_ns["req-0-d0"]) < 0.4


@pytest.mark.requirement("R16", "S3")
@pytest.mark.parametrize("after_s", [0.0, 0.02])
def test_hedged_legs_on_two_engines_fail_closed(after_s: float) -> None:
    """Whoever is done first releases the hold. The other's read was complete by then, or it is
    told that the blocks are gone; it never uses what it cannot be sure of."""
    hedge = f"[{{request: req-0, after_s: {after_s}, same_transfer_id: true, consumer: other}}]"
    outcome, seen = serve(
        "glm-flash",
        1,
        0.0,
        **{
            "topology.consumers": "2",
            "router.retries": hedge,
            "workload.output_tokens": "[40, 40]",
        },
    )
    assert outcome.violations == []
    assert outcome.requests == {"total": 1, "length": 1, "unfinished": 0}
    assert seen.failed == ([] if after_s == 0 else ["req-0-d1"])
    assert len(seen.freed_ns["req-0-p0"]) == 1
