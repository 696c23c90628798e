from __future__ import annotations

import pytest
from oracle_world import LAYERS, OracleWorld

from sim.fabric.work import Operation
from sim.oracles import Oracle


def world_with_a_request(tp_size: int = 1) -> OracleWorld:
    """p0 holds blocks 4 and 5 for r0's first leg, d0 blocks 8 and 9 for its second."""
    world = OracleWorld("use-after-free", tp_size=tp_size).at(1)
    world.hold(world.p0, "r0-p0", [4, 5])
    world.p0.workers[0].write([4, 5], 1)
    world.hold(world.d0, "r0-d0", [8, 9])
    return world


def oracle_of(world: OracleWorld) -> Oracle:
    (oracle,) = world.oracles
    return oracle


def kinds(world: OracleWorld) -> list[str]:
    return [violation.evidence["kind"] for violation in world.violations]


@pytest.mark.parametrize("operation", list(Operation))
def test_bytes_of_blocks_that_are_held_may_be_used(operation: Operation) -> None:
    """O4: the ordinary hand-off, by READ or by WRITE, is no use after free."""
    world = world_with_a_request()
    world.at(2).transfer([4, 5], [8, 9], operation=operation)
    world.read("r0-d0", [8, 9])
    assert world.violations == []
    assert oracle_of(world).counts()["stale_reads"] == 0


@pytest.mark.parametrize("operation", list(Operation))
def test_using_bytes_read_from_freed_blocks_is_a_violation(operation: Operation) -> None:
    """O4: it names the blocks on both sides, who has them now and when they were let go."""
    world = world_with_a_request()
    world.at(60.02).free(world.p0, "r0-p0", [4, 5])
    world.at(60.05).hold(world.p0, "r7-p0", [5])
    world.at(60.1).transfer([4, 5], [8, 9], operation=operation)
    assert world.violations == []
    world.at(60.2).read("r0-d0", [8, 9])
    assert oracle_of(world).counts()["discarded_stale_reads"] == 0
    (violation,) = world.violations
    assert (violation.node, violation.request_id) == ("d0", "r0-d0")
    assert violation.evidence["block_ids"] == [8, 9]
    assert violation.evidence["source_block_ids"] == [4, 5]
    assert "used blocks 8-9, read from blocks that p0 did not hold" in violation.detail
    assert violation.detail.endswith(
        "block 8 was copied from block 4 of p0 by transfer 77 at 60.100000 s, "
        "when block 4 was free since r0-p0 let go of it at 60.020000 s; "
        "p0 let go of r0-p0 at 60.020000 s"
    )


def test_only_the_block_that_was_freed_is_stale() -> None:
    """O4: pairing is by block; its neighbours in the same transfer are fine."""
    world = world_with_a_request()
    world.hold(world.p0, "r7-p0", [6])
    world.p0.workers[0].write([6], 7)
    world.at(2).transfer([4, 6], [8, 9])
    world.read("r0-d0", [8])
    assert world.violations == []
    world.read("r0-d0", [9])
    (violation,) = world.violations
    assert violation.evidence["source_block_ids"] == [6]
    assert ", when block 6 was held by r7-p0 since 1.000000 s" in violation.detail


def test_a_block_that_another_leg_of_the_request_holds_is_not_stale() -> None:
    """O4: after a retry the second producer leg holds the shared prefix."""
    world = world_with_a_request()
    world.hold(world.p0, "r0-p1", [4, 5])
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(2).transfer([4, 5], [8, 9])
    world.read("r0-d0", [8, 9])
    assert world.violations == []


def test_a_stale_read_that_nobody_uses_is_only_counted() -> None:
    """O4: the request was aborted, or its load was found to have failed."""
    world = world_with_a_request()
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(2).transfer([4, 5], [8, 9])
    world.free(world.d0, "r0-d0", [8, 9])
    assert world.violations == []
    counts = oracle_of(world).counts()
    assert (counts["stale_reads"], counts["discarded_stale_reads"]) == (1, 1)


def test_stale_bytes_that_were_computed_anew_are_not_used() -> None:
    """O4: a recomputation writes the blocks before anybody reads them."""
    world = world_with_a_request()
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(2).transfer([4, 5], [8, 9])
    world.d0.workers[0].write([8, 9], 3)
    world.hold(world.p0, "r0-p1", [4, 5])
    world.transfer([4, 5], [8, 9], layers=[0])
    world.read("r0-d0", [8, 9])
    assert world.violations == []


def test_a_good_transfer_replaces_stale_bytes_layer_by_layer() -> None:
    """O4: a retry from blocks that are held heals only the layers that it moved."""
    world = world_with_a_request()
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(2).transfer([4, 5], [8, 9])
    world.at(3).hold(world.p0, "r0-p1", [4, 5])
    world.p0.workers[0].write([4, 5], 2)
    world.transfer([4, 5], [8, 9], layers=[0])
    world.transfer([4], [8], layers=[1])
    world.read("r0-d0", [8])
    assert world.violations == []
    world.read("r0-d0", [9])
    assert [violation.evidence["block_ids"] for violation in world.violations] == [[9]]


@pytest.mark.parametrize(("group", "stale"), [(0, []), (1, ["stale-read"])])
def test_stale_bytes_are_used_by_a_pass_over_their_layers(group: int, stale: list[str]) -> None:
    """O4: a block that a failed load had filled for one group may be given to another, whose load
    fills what this one has of it."""
    world = world_with_a_request()
    world.d0.set_groups(*([name] for name in LAYERS))
    oracle_of(world).engine_started(world.d0)
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(2).transfer([4, 5], [8, 9])
    world.hold(world.p0, "r0-p1", [4, 5])
    world.p0.workers[0].write([4, 5], 3)
    world.transfer([4, 5], [8, 9], layers=[0])
    world.read("r0-d0", [8, 9], group=group)
    assert kinds(world) == stale


def test_the_same_bytes_landing_twice_are_not_stale() -> None:
    """O4: a duplicate of a good transfer, after the release, changes nothing."""
    world = world_with_a_request()
    world.at(2).transfer([4, 5], [8, 9])
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(3).transfer([4, 5], [8, 9], posted_s=2)
    world.read("r0-d0", [8, 9])
    assert world.violations == []


def test_stale_bytes_stay_stale_when_they_land_twice() -> None:
    """O4: the duplicate of a stale transfer does not hide it."""
    world = world_with_a_request()
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(2).transfer([4, 5], [8, 9])
    world.at(3).transfer([4, 5], [8, 9], posted_s=2)
    world.read("r0-d0", [8, 9])
    assert kinds(world) == ["stale-read"]


def test_another_request_that_finds_stale_bytes_in_the_cache_uses_them_too() -> None:
    """O4: content outlives its request."""
    world = world_with_a_request()
    world.free(world.p0, "r0-p0", [4, 5])
    world.at(2).transfer([4, 5], [8, 9])
    world.free(world.d0, "r0-d0", [8, 9])
    world.hold(world.d0, "r1-d0", [8])
    world.read("r1-d0", [8])
    assert [violation.request_id for violation in world.violations] == ["r1-d0"]


@pytest.mark.parametrize("next_holder", [None, "r1-d0", "r0-d0"])
def test_a_write_to_a_block_that_was_let_go_is_a_violation(next_holder: str | None) -> None:
    """O4: whether the block is free now, another request's, or the same one's again."""
    world = world_with_a_request()
    world.at(3).free(world.d0, "r0-d0", [8, 9])
    if next_holder:
        world.at(4).hold(world.d0, next_holder, [8, 9])
    world.at(5).transfer([4, 5], [8, 9], posted_s=2)
    (violation,) = world.violations
    assert violation.evidence["kind"] == "write-after-free"
    assert violation.evidence["block_ids"] == [8, 9]
    state = f"held by {next_holder}" if next_holder else "free since r0-d0 let go of it at 3"
    assert f"block 8 is {state}" in violation.detail


def test_a_write_that_was_posted_to_a_free_block_is_a_violation() -> None:
    """O4: its request had ended before."""
    world = world_with_a_request()
    world.at(3).free(world.d0, "r0-d0", [8, 9])
    world.at(5).transfer([4, 5], [8, 9], posted_s=4)
    assert kinds(world) == ["write-after-free"]


def test_the_null_block_is_nobodys() -> None:
    """O4: it pads the tables of many requests at once, and whatever lands in it is lost."""
    world = world_with_a_request()
    world.hold(world.p0, "r1-p0", [0, 6])
    world.hold(world.d0, "r1-d0", [0, 10])
    world.hold(world.d0, "r2-d0", [0, 11])
    world.p0.workers[0].write([0, 6], 5)
    world.at(2).transfer([0, 6, 0], [0, 10, 11])
    world.read("r1-d0", [10])
    world.read("r2-d0", [11])
    assert world.violations == []
    assert world.blocks.node("d0").holders_of(0) == []


def test_a_write_posted_and_landed_while_the_block_is_held_is_fine() -> None:
    """O4: also when the block belonged to somebody else before it was posted."""
    world = world_with_a_request()
    world.at(3).free(world.d0, "r0-d0", [8, 9])
    world.hold(world.d0, "r0-d1", [8, 9])
    world.transfer([4, 5], [8, 9], posted_s=3)
    world.at(9).transfer([4, 5], [8, 9], posted_s=4)
    assert world.violations == []


def test_a_write_that_outlives_its_request_is_late_although_others_hold_the_block() -> None:
    """O4: the block is still held, but not by the one it was posted for."""
    world = world_with_a_request()
    world.hold(world.d0, "r1-d0", [8])
    world.at(3).free(world.d0, "r0-d0", [8, 9])
    world.at(4).transfer([4], [8], posted_s=2)
    assert kinds(world) == ["write-after-free"]


@pytest.mark.parametrize("reader", ["r0-d0", "r1-d0"])
@pytest.mark.parametrize("owner_lives", [True, False])
def test_changing_a_shared_block_that_was_read_is_a_finding_of_its_own(
    reader: str, owner_lives: bool
) -> None:
    """O4: r1 shares r0's block; a second transfer into it must not change it."""
    world = world_with_a_request()
    world.at(2).transfer([4, 5], [8, 9])
    world.hold(world.d0, "r1-d0", [8])
    world.read(reader, [8])
    if not owner_lives:
        world.free(world.d0, "r0-d0", [8])
        world.hold(world.d0, "r0-d1", [9])
    world.at(3).transfer([4, 5], [8, 9])
    assert world.violations == []
    assert oracle_of(world).counts()["shared_blocks_rewritten_equally"] == 1
    world.p0.workers[0].write([4], 9)
    world.at(4).transfer([4, 5], [8, 9])
    (violation,) = world.violations
    assert violation.evidence["kind"] == "shared-block"
    assert violation.evidence["block_ids"] == [8]


def test_a_merged_segment_may_rewrite_a_shared_block_equally_and_fill_its_neighbour() -> None:
    """O4: what changed is asked block by block."""
    world = world_with_a_request()
    world.at(2).transfer([4, 5], [8, 9])
    world.hold(world.d0, "r1-d0", [8])
    world.read("r1-d0", [8, 9])
    world.p0.workers[0].write([5], 9)
    world.at(3).transfer([4, 5], [8, 9], merged=True)
    assert world.violations == []
    world.p0.workers[0].write([4], 9)
    world.at(4).transfer([4, 5], [8, 9], merged=True)
    assert [violation.evidence["block_ids"] for violation in world.violations] == [[8]]


def test_each_rank_has_its_own_bytes() -> None:
    """O4: rank 0 may be done with a step in which rank 1 still waits for its load."""
    world = world_with_a_request(tp_size=2)
    world.hold(world.d0, "r1-d0", [8])
    world.free(world.p0, "r0-p0", [4, 5])
    world.read("r1-d0", [8], rank=0)
    world.p0.workers[1].write([4, 5], 1)
    world.at(2).transfer([4, 5], [8, 9], rank=1)
    world.read("r1-d0", [8], rank=0)
    assert world.violations == []
    world.read("r1-d0", [8], rank=1)
    assert [violation.evidence["rank"] for violation in world.violations] == [1]


def test_changing_a_block_of_ones_own_is_for_the_reading_forward_pass_to_judge() -> None:
    """O4: r0 alone holds the block, so nobody else can be surprised."""
    world = world_with_a_request()
    world.at(2).transfer([4, 5], [8, 9])
    world.read("r0-d0", [8, 9])
    world.p0.workers[0].write([4], 9)
    world.at(3).transfer([4, 5], [8, 9])
    assert world.violations == []


def test_a_load_may_fill_a_block_that_others_already_share_but_have_not_read() -> None:
    """O4: a synchronous load fills blocks that the cache already lists, in the same step."""
    world = world_with_a_request()
    world.hold(world.d0, "r1-d0", [8])
    world.at(2).transfer([4, 5], [8, 9])
    world.read("r1-d0", [8])
    assert world.violations == []


@pytest.mark.parametrize("owner_lives", [True, False])
def test_a_load_over_a_prefix_hit_is_judged_by_the_request_that_has_the_hit(
    owner_lives: bool,
) -> None:
    """O4: r1 found r0's block on both sides; its own leg holds the source, r0's does not."""
    world = world_with_a_request()
    world.at(2).transfer([4, 5], [8, 9])
    world.hold(world.p0, "r1-p0", [4])
    world.free(world.p0, "r0-p0", [4, 5])
    world.hold(world.d0, "r1-d0", [8])
    if not owner_lives:
        world.free(world.d0, "r0-d0", [8, 9])
    world.at(3).transfer([4], [8])
    assert oracle_of(world).counts()["stale_reads"] == 0
    world.free(world.p0, "r1-p0", [4])
    world.at(4).transfer([4], [8])
    assert oracle_of(world).counts()["stale_reads"] == 1


def test_a_block_taken_back_without_a_word_belongs_to_its_next_holder() -> None:
    """O4: a block that left r0's sliding window is not r0's, although r0 lives on."""
    world = world_with_a_request()
    world.d0.pool.blocks[8].ref_cnt = 0
    world.at(2).hold(world.d0, "r1-d0", [8])
    world.hold(world.p0, "r1-p0", [6])
    world.p0.workers[0].write([6], 6)
    world.transfer([6], [8])
    world.read("r1-d0", [8])
    world.at(3).free(world.d0, "r0-d0", [9])
    world.transfer([6], [8], posted_s=2)
    assert world.violations == []


def test_memory_of_an_earlier_incarnation_is_left_alone() -> None:
    """O4: nobody reads it any more, so nothing can be said about its blocks."""
    world = world_with_a_request()
    old = world.d0.workers[0]
    world.d0.workers[0] = type(old)(world.d0, 0)
    world.free(world.d0, "r0-d0", [8, 9])
    world.at(5).transfer([4, 5], [8, 9], posted_s=0, into=old)
    assert world.violations == []


def test_a_producer_that_writes_to_blocks_which_its_request_has_lost_is_noticed_at_once() -> None:
    """O4: posted long after the consumer gave them to somebody else, who may never read them."""
    world = world_with_a_request()
    world.at(3).free(world.d0, "r0-d0", [8, 9])
    world.at(4).hold(world.d0, "r1-d0", [9])
    world.hold(world.d0, "r2-d0", [8])
    world.at(6).transfer([4, 5], [8, 9], posted_s=5, operation=Operation.WRITE)
    (violation,) = world.violations
    assert violation.evidence["kind"] == "write-after-free"
    assert violation.evidence["block_ids"] == [8, 9]
    assert "what p0 has for r0" in violation.detail
    assert "which r0-d0 does not hold any more: block 8 is held by r2-d0" in violation.detail


@pytest.mark.parametrize(
    ("operation", "holder"),
    [(Operation.READ, "r1-d0"), (Operation.WRITE, "r0-d1")],
    ids=["a consumer's own read", "another leg of the request"],
)
def test_blocks_that_came_to_their_holder_in_order_may_be_filled(
    operation: Operation, holder: str
) -> None:
    """O4: a consumer reads into its own blocks; what it reads is judged when it is used."""
    world = world_with_a_request()
    world.at(3).free(world.d0, "r0-d0", [8, 9])
    world.at(4).hold(world.d0, holder, [8, 9])
    world.at(6).transfer([4, 5], [8, 9], posted_s=5, operation=operation)
    assert world.violations == []
