from __future__ import annotations

from types import SimpleNamespace

import pytest
from oracle_world import OracleWorld

from sim.probes import StepTimes
from sim.units import SECOND


def step(start_s: int, end_s: int, node: str = "d0") -> StepTimes:
    return StepTimes(node, start_s * SECOND, end_s * SECOND, 1)


@pytest.mark.parametrize(("duration_s", "count"), [(1, 0), (35, 0), (36, 1)])
def test_a_step_may_take_the_transfer_timeout_and_a_margin(duration_s: int, count: int) -> None:
    """O10: 30 s and 5 s by default."""
    world = OracleWorld("bounded-waiting")
    world.tell("step_done", step(10, 10 + duration_s))
    assert len(world.violations) == count


def test_a_step_that_blocks_longer_says_from_when_to_when() -> None:
    """O10: the limit follows the connector's configuration."""
    world = OracleWorld("bounded-waiting", transfer_timeout_s=4, margin_s=1)
    world.tell("step_done", step(10, 16))
    (violation,) = world.violations
    assert violation.node == "d0"
    assert violation.detail == (
        "a step of d0 took 6.000 s, from 10.000000 s to 16.000000 s; the limit is 5 s"
    )


def test_time_in_which_the_engine_was_stopped_does_not_count() -> None:
    """O10: a pause of 60 s in the middle, of two processes at overlapping times."""
    world = OracleWorld("bounded-waiting")
    world.at(12).clock.record("process-paused", process="d0/core")
    world.at(20).clock.record("process-paused", process="d0/rank0")
    world.at(70).clock.record("process-resumed", process="d0/core")
    world.at(72).clock.record("process-resumed", process="d0/rank0")
    world.tell("step_done", step(10, 100))
    assert world.violations == []
    world.tell("step_done", step(10, 110))
    assert [violation.evidence["stopped_ns"] for violation in world.violations] == [60 * SECOND]


def test_another_engines_pause_is_no_excuse() -> None:
    """O10: to wait for a peer that was stopped is what the time-out is for."""
    world = OracleWorld("bounded-waiting")
    world.at(12).clock.record("process-paused", process="p0/core")
    world.at(72).clock.record("process-resumed", process="p0/core")
    world.clock.record("process-paused", process="p0/core")
    world.at(200).tell("step_done", step(10, 100))
    assert [violation.evidence["stopped_ns"] for violation in world.violations] == [0]


def stuck_world() -> OracleWorld:
    """d0's last step ended at 20 s; it got a request at 30 s."""
    world = OracleWorld("bounded-waiting").at(20)
    world.tell("step_done", step(19, 20))
    world.at(30).clock.record("leg-sent", node="d0")
    world.d0.add_request("r0-d0", finished=False)
    return world


def test_a_step_that_never_returns_is_a_violation_at_the_end() -> None:
    """O10: the engine has work, and has finished no step for too long."""
    world = stuck_world()
    world.at(66).finish()
    (violation,) = world.violations
    assert violation.evidence["kind"] == "stuck-step"
    assert "d0 has unfinished requests and has finished no step since 30" in violation.detail


@pytest.mark.parametrize(
    ("at_s", "injected", "found"), [(66, False, 1), (64, False, 0), (66, True, 1)]
)
def test_a_step_that_ends_with_its_engine_is_judged_then(
    at_s: int, injected: bool, found: int
) -> None:
    """O10: a crash that was injected ends the wait, and does not undo it."""
    world = stuck_world().at(at_s)
    world.tell("engine_died", "d0", "timed out", injected=injected, traceback=())
    assert len(world.violations) == found


def test_ranks_that_step_together_wait_for_each_other() -> None:
    """O10: a stop of one is a stop of all, and so is a step that one has just finished."""
    world = stuck_world()
    together = SimpleNamespace(ranks=[world.d0, world.p0])
    for engine in (world.d0, world.p0):
        engine.in_lockstep, engine.group = True, together
    world.at(31).clock.record("process-paused", process="p0/core")
    world.at(99).clock.record("process-resumed", process="p0/core")
    world.tell("step_done", step(25, 99))
    world.at(101).tell("step_done", step(40, 101, "p0"))
    world.at(130).finish()
    assert world.violations == []
    world.at(137).finish()
    assert len(world.violations) == 1


def test_more_work_does_not_excuse_an_engine_that_has_some() -> None:
    """O10: and what other engines get is nothing to it."""
    world = stuck_world()
    world.at(60).clock.record("leg-sent", node="d0")
    world.at(64).clock.record("leg-sent", node="p0")
    world.at(66).finish()
    assert len(world.violations) == 1


def test_an_engine_that_got_work_just_now_or_has_none_is_not_stuck() -> None:
    """O10: nor is one that is stopped at the end."""
    world = stuck_world()
    world.at(64).finish()
    world.clock.record("process-paused", process="d0/core")
    world.at(90).finish()
    world.d0.scheduler.requests.clear()
    world.at(999).finish()
    assert world.violations == []
