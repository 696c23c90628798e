from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from oracle_world import OracleWorld

from sim.engine.wrong_bytes import WrongBytesReporter
from sim.model.verify import Found, Mismatch
from sim.probes import WrongBytes


def finding(request_id: str = "r0-d0", block_ids: tuple[int, ...] = (8, 9)) -> WrongBytes:
    return WrongBytes(
        node="d0",
        rank=0,
        request_id=request_id,
        layer="model.layers.0.self_attn.attn",
        group=0,
        block_ids=block_ids,
        first_token=0,
        last_token=31,
        found="the bytes of r7, token 0",
        owner="r7",
        history=("block 8 was last written at 60.100000 s by transfer 77",),
    )


def test_a_finding_tells_where_the_bytes_came_from_and_who_had_them() -> None:
    """O1: layer, group, blocks, tokens, whose bytes, and the chain of events behind them."""
    world = OracleWorld("wrong-bytes").at(1)
    world.hold(world.p0, "r0-p0", [4, 5])
    world.hold(world.d0, "r0-d0", [8, 9])
    world.at(60.02).free(world.p0, "r0-p0", [4, 5])
    world.at(60.05).hold(world.p0, "r7-p0", [4, 5])
    world.at(60.1).transfer([4, 5], [8, 9])
    world.at(60.2).tell("wrong_bytes", finding())
    (violation,) = world.violations
    assert violation.oracle == "wrong-bytes"
    assert violation.time_s == 60.2
    assert violation.detail.startswith(
        "d0 rank 0 read wrong bytes for r0-d0: layer model.layers.0.self_attn.attn, group 0, "
        "blocks 8-9, "
        "tokens 0-31; found the bytes of r7, token 0; block 8 was last written"
    )
    assert violation.evidence["owner"] == "r7"
    assert violation.evidence["chain"] == [
        "block 8 was last written at 60.100000 s by transfer 77",
        "the last transfer into it, 77, copied block 4 of p0 at 60.100000 s",
        "block 4 of p0 was held by r7-p0 then",
        "p0 let go of the blocks of r0-p0 at 60.020000 s",
    ]


def test_a_source_block_that_was_free_is_said_to_be_free() -> None:
    """O1: the bytes may still be the right ones' remains, or never anybody's."""
    world = OracleWorld("wrong-bytes").at(1)
    world.hold(world.p0, "r0-p0", [4])
    world.free(world.p0, "r0-p0", [4])
    world.transfer([4, 6], [8, 9])
    world.tell("wrong_bytes", finding(block_ids=(8,)))
    world.tell("wrong_bytes", finding(block_ids=(9,)))
    chains = [violation.evidence["chain"] for violation in world.violations]
    assert "block 4 of p0 was free, and before that held by r0-p0 then" in chains[0]
    assert "no request had ever held block 6 of p0 then" in chains[1]


def test_one_wrong_block_does_not_bury_the_rest() -> None:
    """O1: after the third finding of a request the others are counted."""
    world = OracleWorld("wrong-bytes")
    for _ in range(10_000):
        world.tell("wrong_bytes", finding())
    world.tell("wrong_bytes", finding("r1-d0"))
    assert [violation.request_id for violation in world.violations] == ["r0-d0"] * 3 + ["r1-d0"]
    assert world.violations[0].evidence["not_listed"] == 9_997
    assert len(world.clock.log.records) == 4


def test_right_bytes_are_no_finding() -> None:
    """O1: reading, by itself, says nothing."""
    world = OracleWorld("wrong-bytes")
    world.hold(world.p0, "r0-p0", [4])
    world.hold(world.d0, "r0-d0", [8])
    world.transfer([4], [8])
    world.read("r0-d0", [8])
    world.finish()
    assert world.violations == []


def test_the_first_violation_tells_how_far_all_findings_about_its_request_reach() -> None:
    """O1: only a few findings of a request are listed, but none is left out of the extent."""
    world = OracleWorld("wrong-bytes").at(1)
    world.hold(world.p0, "r7-p0", [4, 5])
    world.transfer([4, 5], [8, 9])
    for layer in range(4):
        wrong = replace(finding(), layer=f"layer-{layer}")
        world.tell("wrong_bytes", wrong)
    world.finish()
    first, second, third = world.violations
    assert first.evidence["not_listed"] == 1
    assert first.evidence["extent"] == {
        "ranks": [0],
        "layers": ["layer-0", "layer-1", "layer-2", "layer-3"],
        "block_ids": [8, 9],
        "tokens": [0, 31],
        "owners": ["r7"],
        "found": [],
        "source_nodes": ["p0"],
        "source_block_ids": [4, 5],
        "copied": [[8, 4], [9, 5]],
        "transfers": [77],
        "overwritten": [],
    }
    assert "extent" not in second.evidence
    assert "extent" not in third.evidence


def test_a_write_after_the_transfer_is_told_and_one_before_it_is_not() -> None:
    """O1: the transfer is not to blame for what somebody wrote over it."""
    for written_s, told in ((1.5, [[1_500_000_000, 8, "drafts of r5-d0 on d0"]]), (0.5, [])):
        world = OracleWorld("wrong-bytes").at(1)
        world.hold(world.p0, "r0-p0", [4])
        world.transfer([4], [8])
        written_ns = int(written_s * 1e9)
        wrong = replace(
            finding(block_ids=(8,)), written_ns=written_ns, writer="drafts of r5-d0 on d0"
        )
        world.at(2).tell("wrong_bytes", wrong)
        world.finish()
        (violation,) = world.violations
        assert violation.evidence["extent"]["overwritten"] == told


def test_tokens_of_the_request_itself_in_the_wrong_place_are_told_with_both_places() -> None:
    """O1: whose bytes they are is no news then, and no owner is named."""
    owners = SimpleNamespace(find={7: ("r0", 32), 8: ("r1", 32)}.get)
    engine = SimpleNamespace(name="d0", world=SimpleNamespace(owners=owners))
    memory = SimpleNamespace(last_write=lambda block: None)
    reporter = WrongBytesReporter(cast("Any", engine), 0, cast("Any", memory))

    def found(prefix_hash: int) -> tuple[str, str | None]:
        content = Found("entry", b"", prefix_hash, "layer.0")
        wrong = reporter.finding("r0-d0", 0, Mismatch("layer.0", (8,), 16, 31, 9, content, 1))
        return wrong.found, wrong.owner

    assert found(7) == ("its own token 32 where token 16 belongs (layer layer.0)", None)
    assert found(8) == ("the bytes of r1, token 32, layer layer.0", "r1")
