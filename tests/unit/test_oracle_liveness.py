from __future__ import annotations

from oracle_world import OracleWorld


def kinds(world: OracleWorld) -> list[str]:
    return [violation.evidence["kind"] for violation in world.violations]


def test_requests_that_end_in_any_way_while_things_break_are_fine() -> None:
    """O6: an error that reaches the client is an end, and so is a crash that was ordered."""
    world = OracleWorld("liveness").at(1)
    for request_id, outcome in (("r0", "length"), ("r1", "error"), ("r2", "abort")):
        world.tell("request_started", request_id)
        world.tell("request_ended", request_id, outcome, [])
    world.tell("engine_died", "p0", "crashed", injected=True, traceback=())
    world.p0.alive = False
    world.finish()
    assert world.violations == []


def test_a_request_without_an_end_is_a_violation() -> None:
    """O6: it says since when the client waits."""
    world = OracleWorld("liveness").at(1)
    world.tell("request_started", "r0")
    world.tell("request_started", "r1")
    world.tell("request_ended", "r0", "stop", [])
    world.at(300).finish()
    (violation,) = world.violations
    assert violation.request_id == "r1"
    assert violation.detail == "r1, sent at 1.000000 s, has not ended by 300.000000 s"


def test_an_engine_that_dies_by_itself_is_a_violation_of_its_own_kind() -> None:
    """O6: at once, with the reason."""
    world = OracleWorld("liveness").at(5)
    world.tell("engine_died", "d0", "AssertionError: req-0", injected=False, traceback=["m:1 in f"])
    (violation,) = world.violations
    assert (violation.node, violation.time_s) == ("d0", 5.0)
    assert kinds(world) == ["engine-died"]
    assert "AssertionError: req-0" in violation.detail


def test_a_request_sent_when_all_is_well_again_must_succeed() -> None:
    """O6: then an error is a violation, whatever had happened before."""
    world = OracleWorld("liveness").at(10)
    world.tell("quiet_phase_began")
    world.tell("request_started", "r9")
    world.tell("request_ended", "r9", "error", [])
    assert kinds(world) == ["not-recovered"]


def test_a_request_sent_before_may_still_fail_after_the_faults_have_stopped() -> None:
    """O6: what hit it lies before; and one that succeeds is fine anyway."""
    world = OracleWorld("liveness").at(9)
    world.tell("request_started", "r0")
    world.at(10).tell("quiet_phase_began")
    world.tell("request_ended", "r0", "error", [])
    world.tell("request_started", "r9")
    world.tell("request_ended", "r9", "length", [])
    world.finish()
    assert world.violations == []
