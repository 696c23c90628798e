from __future__ import annotations

from oracle_world import OracleWorld

from sim.probes import StepTimes


def loading() -> OracleWorld:
    """r0 holds blocks 4-5 of d0, which vLLM wants zeroed, and p0 has what is to go there."""
    world = OracleWorld("zeroing")
    world.hold(world.p0, "r0-p0", [1, 2])
    world.p0.workers[0].write([1, 2], 7)
    world.hold(world.d0, "r0-d0", [4, 5])
    world.tell("zeroing_wanted", "d0", [4, 5])
    return world


def zero(world: OracleWorld, blocks: list[int]) -> None:
    world.d0.workers[0].write(blocks, 0)
    world.tell("blocks_zeroed", "d0", 0, blocks)


def kinds(world: OracleWorld) -> list[str]:
    return [violation.evidence["kind"] for violation in world.violations]


def test_zeroing_after_the_bytes_landed_is_a_violation() -> None:
    """O9: once somebody reads the zeros."""
    world = loading()
    world.transfer([1, 2], [4, 5])
    zero(world, [4, 5])
    assert kinds(world) == []
    world.read("r0-d0", [4, 5])
    assert kinds(world) == ["loaded-then-zeroed"]
    assert "used blocks 4-5, zeroed after a transfer had brought their content" in (
        world.violations[0].detail
    )


def test_zeroing_before_the_bytes_landed_is_as_it_should_be() -> None:
    """O9: and so is a load without any zeroing."""
    world = loading()
    zero(world, [4])
    world.transfer([1, 2], [4, 5])
    world.read("r0-d0", [4, 5])
    assert kinds(world) == []


def test_blocks_that_are_zeroed_and_computed_again_are_nobodys_loss() -> None:
    """O9: as after a load that failed, which vLLM recomputes."""
    world = loading()
    world.transfer([1, 2], [4, 5])
    zero(world, [4, 5])
    world.d0.workers[0].write([4, 5], 7)
    world.read("r0-d0", [4, 5])
    assert kinds(world) == []


def pass_steps(world: OracleWorld, count: int) -> None:
    for _ in range(count):
        world.tell("step_done", StepTimes("d0", 0, 0, model_executed=True))


def test_a_new_block_that_is_neither_zeroed_nor_loaded_is_a_violation() -> None:
    """O9: whatever was there before may be read."""
    world = loading()
    world.transfer([1], [4])
    pass_steps(world, 3)
    world.finish()
    assert kinds(world) == ["not-zeroed"]
    assert "vLLM wanted block 5 of d0 rank 0 zeroed" in world.violations[0].detail


def test_a_zeroing_that_is_still_queued_is_no_violation() -> None:
    """O9: the step that wants it is under way when the run is cut off."""
    world = loading()
    pass_steps(world, 2)
    world.finish()
    assert kinds(world) == []


def test_layers_that_land_later_do_not_hide_those_that_were_wiped() -> None:
    """O9: and a layer that lands again is whole again."""
    world = loading()
    world.transfer([1, 2], [4, 5], layers=[0])
    zero(world, [4, 5])
    world.transfer([1, 2], [4, 5], layers=[1])
    world.read("r0-d0", [4, 5])
    assert kinds(world) == ["loaded-then-zeroed"]
    world = loading()
    world.transfer([1, 2], [4, 5], layers=[0])
    zero(world, [4, 5])
    world.transfer([1, 2], [4, 5], layers=[0, 1])
    world.read("r0-d0", [4, 5])
    assert kinds(world) == []


def test_the_next_owner_of_a_block_is_judged_by_its_own_zeroing() -> None:
    """O9: what was loaded for one request may be zeroed for another."""
    world = loading()
    world.transfer([1, 2], [4, 5])
    world.free(world.d0, "r0-d0", [4, 5])
    world.hold(world.d0, "r1-d0", [4, 5])
    zero(world, [4, 5])
    world.read("r1-d0", [4, 5])
    assert kinds(world) == []
