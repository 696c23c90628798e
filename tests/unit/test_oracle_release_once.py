from __future__ import annotations

from oracle_world import OracleWorld


def test_one_release_by_each_rank_is_right() -> None:
    """O5: also when a request of the same name runs again after a restart."""
    world = OracleWorld("release-once", tp_size=2)
    for _ in range(2):
        world.tell("engine_started", world.p0)
        world.tell("sending_finished", "p0", 0, "r0-p0")
        world.tell("sending_finished", "p0", 1, "r0-p0")
    world.finish()
    assert world.violations == []


def test_a_second_release_by_one_rank_is_a_violation() -> None:
    """O5: the other rank's release is none."""
    world = OracleWorld("release-once", tp_size=2).at(3)
    world.tell("sending_finished", "p0", 0, "r0-p0")
    world.tell("sending_finished", "p0", 1, "r0-p0")
    world.at(4).tell("sending_finished", "p0", 1, "r0-p0")
    (violation,) = world.violations
    assert (violation.node, violation.request_id) == ("p0", "r0-p0")
    assert violation.detail == ("p0 rank 1 released r0-p0 again; the first time was at 3.000000 s")


def test_blocks_that_stay_held_because_a_rank_never_released_them_are_a_violation() -> None:
    """O5: rank 0 did its part."""
    world = OracleWorld("release-once", tp_size=2)
    world.p0.add_request("r0-p0", finished=True)
    world.tell("sending_finished", "p0", 0, "r0-p0")
    world.finish()
    (violation,) = world.violations
    assert violation.evidence == {"kind": "never-released", "ranks": [1]}


def test_blocks_that_the_producer_took_back_by_itself_need_no_release() -> None:
    """O5: the lease ran out, and the scheduler has forgotten the request."""
    world = OracleWorld("release-once")
    world.hold(world.p0, "r0-p0", [4])
    world.free(world.p0, "r0-p0", [4])
    world.finish()
    assert world.violations == []


def test_only_ended_requests_of_living_producers_can_lack_a_release() -> None:
    """O5: not one that still runs, not a consumer's, not one that died with its engine."""
    world = OracleWorld("release-once")
    world.p0.add_request("r0-p0", finished=False)
    world.d0.add_request("r0-d0", finished=True)
    world.finish()
    world.p0.add_request("r1-p0", finished=True)
    world.p0.alive = False
    world.finish()
    assert world.violations == []
