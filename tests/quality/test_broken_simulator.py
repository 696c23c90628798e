"""A simulator that is broken on purpose is noticed, by the oracle whose business it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from sim.engine.runner import ModelRunner
from sim.fabric.verdicts import LandLate, WorkRequestItem
from sim.outcome import Outcome
from sim.probes import Probe
from sim.run import TestBed, run
from sim.scenario import Scenario, UniformWorkload
from sim.units import MS
from sim.verdict import Corrupt, Verdict

SMALL = Scenario(
    workload=UniformWorkload(
        requests=4, prompt_tokens=(100, 300), output_tokens=(4, 8), interval_ms=50.0
    )
)


def outcome_of(scenario: Scenario, prepare: Callable[[TestBed], None] | None = None) -> Outcome:
    return run(scenario, prepare=prepare).outcome


def fired(outcome: Outcome) -> set[str]:
    return {violation.oracle for violation in outcome.violations}


class OnceAt:
    """A rule that answers one question: the ``nth`` work-request chain to land."""

    def __init__(self, nth: int, verdict: Verdict) -> None:
        self._left = nth
        self._verdict = verdict

    def judge(self, item: Any) -> Verdict | None:
        if not isinstance(item, WorkRequestItem):
            return None
        self._left -= 1
        return self._verdict if self._left == 0 else None


def rule(verdict: Verdict, nth: int = 3) -> Callable[[TestBed], None]:
    return lambda bed: bed.world.fabric.verdicts.add(OnceAt(nth, verdict))


def flip_first_bit(payload: np.ndarray[Any, Any]) -> None:
    payload[0] ^= 1


@pytest.mark.parametrize("model", ["llama", "deepseek-mla"])
@pytest.mark.parametrize("check", ["incremental", "full"])
def test_nothing_fires_on_an_unbroken_simulator(model: str, check: str) -> None:
    """The near miss of everything below."""
    outcome = outcome_of(msgspec.structs.replace(SMALL, model=model, check=check))
    assert outcome.verdict == "pass", outcome.violations
    assert outcome.requests == {"total": 4, "length": 4, "unfinished": 0}


@pytest.mark.parametrize("check", ["incremental", "full"])
def test_a_flipped_byte_is_found_where_it_is(check: str) -> None:
    """One bit of one byte of one transfer: O1 names layer, block and token; O2 the output."""
    scenario = msgspec.structs.replace(SMALL, check=check)
    outcome = outcome_of(scenario, rule(Corrupt(flip_first_bit)))
    assert {"wrong-bytes", "same-output"} == fired(outcome)
    wrong = next(v for v in outcome.violations if v.oracle == "wrong-bytes")
    assert wrong.node == "d0"
    assert "model.layers.2.self_attn.attn" in wrong.detail


def test_completion_before_the_bytes_is_wrong_bytes() -> None:
    """A success that is reported 20 ms before the bytes land starts a forward on zeros."""
    outcome = outcome_of(SMALL, rule(LandLate(20 * MS)))
    assert "wrong-bytes" in fired(outcome)


class FreeOnHandOff(Probe):
    """Frees the producer's blocks of a request while the router holds it."""

    def __init__(self, bed: TestBed, request_id: str) -> None:
        self._bed = bed
        self._request_id = request_id

    def request_started(self, request_id: str) -> None:
        if request_id == self._request_id:
            self._bed.kernel.call_later(400 * MS, self._free)

    def _free(self) -> None:
        loop = self._bed.producers[0].loop
        assert loop is not None
        request = loop.scheduler.requests[f"{self._request_id}-p0"]
        loop.scheduler.kv_cache_manager.free(request)


def test_a_block_freed_early_is_use_after_free() -> None:
    """P gives up blocks that D has yet to read; the bytes still happen to be right."""
    router = msgspec.convert({"holds": [{"request": "req-0", "seconds": 1}]}, type(SMALL.router))
    scenario = msgspec.structs.replace(SMALL, router=router)
    assert fired(outcome_of(scenario)) == set()
    outcome = outcome_of(scenario, lambda bed: bed.world.probes.add(FreeOnHandOff(bed, "req-0")))
    assert fired(outcome) == {"use-after-free"}
    (violation,) = [v for v in outcome.violations if v.request_id == "req-0-d0"][:1]
    assert "p0" in violation.detail


class ReleaseTwice(Probe):
    """Makes P's worker report the first release again in the next step that reports anything."""

    def __init__(self, bed: TestBed) -> None:
        self._bed = bed
        self._reported: list[str] = []

    def engine_started(self, engine: Any) -> None:
        if engine.name != "p0":
            return
        vllm_hooks = engine.workers[0].runner.hooks._kv_connector
        original = vllm_hooks.post_forward

        def post_forward(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            if output is not None:
                if self._reported and not output.finished_sending:
                    output.finished_sending = {self._reported.pop()}
                elif output.finished_sending:
                    self._reported = sorted(output.finished_sending)
            return output

        vllm_hooks.post_forward = post_forward


def test_a_release_reported_twice_is_noticed() -> None:
    """The connector's scheduler half swallows the second one; only the oracle tells."""
    outcome = outcome_of(SMALL, lambda bed: bed.world.probes.add(ReleaseTwice(bed)))
    assert fired(outcome) == {"release-once"}


def test_a_request_that_nobody_answers_is_a_liveness_violation() -> None:
    """The router loses a hand-off: the request never ends, and its blocks are a leak."""

    def lose_hand_off(bed: TestBed) -> None:
        send = bed.consumers[0].add_request
        bed.consumers[0].add_request = (  # type: ignore[method-assign]
            lambda request: None if request.request_id == "req-1-d0" else send(request)
        )

    scenario = msgspec.structs.replace(SMALL, max_virtual_s=30.0)
    outcome = outcome_of(scenario, lose_hand_off)
    assert "liveness" in fired(outcome)
    assert outcome.requests["unfinished"] == 1


def test_blocks_that_never_come_back_are_a_leak() -> None:
    """Something takes blocks from a pool and keeps them."""

    class Thief(Probe):
        def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
            if request_id == "req-0":
                loop = bed_of[0].consumers[0].loop
                assert loop is not None
                loop.scheduler.kv_cache_manager.block_pool.get_new_blocks(2)

    bed_of: list[TestBed] = []

    def prepare(bed: TestBed) -> None:
        bed_of.append(bed)
        bed.world.probes.add(Thief())

    scenario = msgspec.structs.replace(SMALL, quiet_phase_s=5.0)
    assert fired(outcome_of(scenario, prepare)) == {"leak"}


def test_a_step_that_hangs_is_a_bounded_waiting_violation() -> None:
    """A forward pass that takes 40 s is longer than any wait that the connector is allowed."""
    slow = msgspec.structs.replace(SMALL.engine.step_times, base_us=40_000_000)
    engine = msgspec.structs.replace(SMALL.engine, step_times=slow)
    scenario = msgspec.structs.replace(SMALL, engine=engine, quiet_phase_s=1_000.0)
    assert fired(outcome_of(scenario)) == {"bounded-waiting"}
    wider = msgspec.structs.replace(scenario, extra_config={"transfer_timeout": 60})
    assert fired(outcome_of(wider)) == set()


def test_bytes_that_land_after_everything_ended_are_waited_for() -> None:
    """A run is not over while something may still be written: here two seconds after the end."""
    outcome = outcome_of(SMALL, rule(LandLate(2_000 * MS), nth=16))
    kinds = {violation.evidence.get("kind") for violation in outcome.violations}
    assert "write-after-free" in kinds


class ZeroWhatLanded(Probe):
    """A zeroing kernel that runs after the transfer, as one on a busy stream does."""

    def __init__(self) -> None:
        self._models: dict[str, Any] = {}

    def engine_started(self, engine: Any) -> None:
        self._models[engine.name] = engine

    def after_landing(self, landing: Any) -> None:
        engine = self._models["d0"]
        found = engine.world.memory_map.locate(
            landing.destination, landing.destination_offsets, landing.sizes
        )
        if found is not None and landing.transfer_uid == 2:
            worker, touched = found
            worker.runner.model.zero(np.unique(touched.block_id).tolist())


def test_a_zeroing_that_comes_too_late_is_named() -> None:
    """Content tells that something is wrong, and the zeroing oracle what."""
    outcome = outcome_of(SMALL, lambda bed: bed.world.probes.add(ZeroWhatLanded()))
    assert {"zeroing", "wrong-bytes"} <= fired(outcome)
    kinds = {v.evidence["kind"] for v in outcome.violations if v.oracle == "zeroing"}
    assert kinds == {"loaded-then-zeroed"}


def test_blocks_that_vllm_wants_zeroed_and_are_not_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A runner that forgets to; whether it shows in content depends on who was there before."""
    monkeypatch.setattr(ModelRunner, "_zero_new_blocks", lambda self, scheduler_output: None)
    scenario = msgspec.structs.replace(SMALL, model="qwen-hybrid", connector="reference")
    outcome = outcome_of(scenario)
    kinds = {v.evidence["kind"] for v in outcome.violations if v.oracle == "zeroing"}
    assert kinds == {"not-zeroed"}
