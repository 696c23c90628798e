from __future__ import annotations

from oracle_world import OracleWorld


def test_engines_that_hold_nothing_leak_nothing() -> None:
    """O3: the null block is never free and counts for nothing."""
    world = OracleWorld("leak")
    world.hold(world.p0, "r0-p0", [4, 5])
    world.free(world.p0, "r0-p0", [4, 5])
    world.finish()
    assert world.violations == []


def test_blocks_that_an_ended_request_keeps_are_a_leak() -> None:
    """O3: the violation names the engine, the request and since when it holds them."""
    world = OracleWorld("leak").at(7)
    world.hold(world.p0, "r0-p0", [4, 5])
    world.p0.add_request("r0-p0", finished=True)
    world.at(300).finish()
    (violation,) = world.violations
    assert (violation.node, violation.evidence["free"], violation.evidence["idle"]) == (
        "p0",
        29,
        31,
    )
    assert "2 of 31 blocks are not free" in violation.detail
    assert "r0-p0 (ended) holds 2 since 7.000000 s" in violation.detail


def test_a_request_left_in_the_scheduler_is_a_leak_without_blocks_too() -> None:
    """O3: the hold itself is the leak."""
    world = OracleWorld("leak")
    world.d0.add_request("r0-d0", finished=False)
    world.finish()
    assert [violation.node for violation in world.violations] == ["d0"]
    assert "r0-d0 (unfinished) holds 0" in world.violations[0].detail


def test_blocks_that_nobody_can_be_blamed_for_are_a_leak() -> None:
    """O3: a block missing from the pool is missed although no request is left."""
    world = OracleWorld("leak")
    world.d0.pool.blocks[3].ref_cnt = 1
    world.finish()
    assert "1 of 31 blocks are not free; no request is left" in world.violations[0].detail


def test_an_engine_that_is_dead_or_not_up_cannot_leak() -> None:
    """O3: its memory is gone with it."""
    world = OracleWorld("leak")
    world.p0.add_request("r0-p0", finished=True)
    world.p0.alive = False
    world.d0.add_request("r0-d0", finished=True)
    world.d0.loop = None  # type: ignore[assignment]
    world.finish()
    assert world.violations == []
