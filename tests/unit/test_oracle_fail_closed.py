from __future__ import annotations

from oracle_world import LAYERS, OracleWorld


def mismatched() -> OracleWorld:
    """p0 has blocks of 8 tokens and d0 of 4, and d0 has loaded blocks 4-5 from p0."""
    world = OracleWorld("fail-closed")
    world.p0.set_layout(block_size=8)
    world.tell("engine_started", world.p0)
    world.hold(world.p0, "r0-p0", [1, 2])
    world.hold(world.d0, "r0-d0", [4, 5])
    world.transfer([1, 2], [4, 5])
    return world


def test_serving_from_a_peer_that_does_not_fit_is_a_violation() -> None:
    """O8: with what differs, on both sides."""
    world = mismatched()
    world.read("r0-d0", [4, 5])
    (violation,) = world.violations
    assert (violation.request_id, violation.evidence["peer"]) == ("r0-d0", "p0")
    assert "with 8 tokens of mixed entries and 16 bytes a block on p0" in violation.detail
    assert "with 4 tokens of mixed entries and 8 bytes a block on d0" in violation.detail


def test_what_was_loaded_and_not_used_was_not_served() -> None:
    """O8: the blocks are recomputed before anybody reads them."""
    world = mismatched()
    world.d0.workers[0].write([4, 5], 3)
    world.read("r0-d0", [4, 5])
    assert world.violations == []


def test_other_layers_do_not_fit_either() -> None:
    """O8: one layer fewer."""
    world = OracleWorld("fail-closed")
    world.p0.set_layout(layers=LAYERS[:1])
    world.tell("engine_started", world.p0)
    world.transfer([1], [4])
    world.read("r0-d0", [4])
    assert f"only one of them has {LAYERS[1]}" in world.violations[0].detail


def test_engines_that_fit_serve_each_other() -> None:
    """O8: the near miss of all of them."""
    world = OracleWorld("fail-closed")
    world.transfer([1, 2], [4, 5])
    world.read("r0-d0", [4, 5])
    assert world.violations == []


def test_another_number_of_ranks_is_not_a_mismatch_by_itself() -> None:
    """O8: bytes a block differ then, and a connector may know how to split them."""
    world = OracleWorld("fail-closed")
    world.p0.options.tp_size = 2
    for group in world.p0.scheduler.kv_cache_config.kv_cache_groups:
        group.kv_cache_spec.page_size_bytes //= 2
    world.tell("engine_started", world.p0)
    world.transfer([1, 2], [4, 5])
    world.read("r0-d0", [4, 5])
    assert world.violations == []
