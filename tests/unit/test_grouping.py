from __future__ import annotations

from typing import Any

from faults.grouping import group
from sim.oracles import Violation


def wrong_bytes(layer: int, **evidence: Any) -> Violation:
    detail = f"d0 rank 0 read wrong bytes for r0-d0: layer {layer}, ..."
    return Violation(
        "wrong-bytes",
        1.0,
        "d0",
        "r0-d0",
        detail,
        {"chain": ["p0 let go of the blocks of r0-p0 at 0.5 s", "block 4 was free"], **evidence},
    )


EXTENT = {
    "ranks": [0],
    "layers": ["layer.0", "layer.1", "layer.2", "layer.3"],
    "block_ids": [8, 9, 12],
    "tokens": [0, 47],
    "owners": ["r7"],
    "source_nodes": ["p0"],
    "source_block_ids": [4, 5, 6],
    "transfers": [1],
}


def test_findings_on_several_layers_become_one_sentence() -> None:
    """It says how far they reach, whose bytes were found, and when the blocks were given up."""
    (found,) = group([wrong_bytes(0, extent=EXTENT, not_listed=1), wrong_bytes(1), wrong_bytes(2)])
    assert found.count == 4
    assert found.sentence == (
        "d0 rank 0 read wrong bytes for r0-d0: 4 layers (layer.0 to layer.3), blocks 8-9, 12, "
        "tokens 0-47; found the bytes of r7, copied from blocks 4-6 of p0; "
        "p0 let go of the blocks of r0-p0 at 0.5 s"
    )


def test_blocks_that_changed_their_order_are_listed_one_by_one() -> None:
    """A range of sources would look as if every block had gone where it belongs."""
    swapped = {**EXTENT, "source_block_ids": [2, 3], "copied": [[2, 3], [3, 2]]}
    (found,) = group([wrong_bytes(0, extent=swapped, not_listed=1)])
    assert ", copied from blocks 3 into 2, 2 into 3 of p0;" in found.sentence
    kept = {**EXTENT, "source_block_ids": [2, 3], "copied": [[8, 2], [9, 3]]}
    (found,) = group([wrong_bytes(0, extent=kept, not_listed=1)])
    assert ", copied from blocks 2-3 of p0;" in found.sentence


def test_what_an_epilogue_is_is_said_where_a_finding_names_one() -> None:
    """Unless the finding says it by itself."""

    def said(detail: str) -> str:
        return group([Violation("same-output", 1.0, None, "epilogue", detail, {})])[0].sentence

    told = "epilogue: sent when nothing is broken any more, and has to succeed"
    assert said("epilogue-1 ended with 'stop'") == f"epilogue-1 ended with 'stop' ({told})"
    by_itself = "epilogue was sent at 1 s, when nothing was broken any more, and ended"
    assert said(by_itself) == by_itself
    assert said("req-1 ended") == "req-1 ended"


def test_what_a_finding_repeats_is_counted() -> None:
    """A batch of which each part fails says so for each."""
    violation = Violation("engine-died", 1.0, "p0", None, "failed; no; no; no; yes; no", {})
    assert group([violation])[0].sentence == "failed; no (3 times); yes; no"


def test_why_two_rules_name_other_blocks_of_one_request_is_said() -> None:
    """Once, and only where they do."""

    def said(kind: str, blocks: list[int], **evidence: Any) -> str:
        after_free = Violation(
            "use-after-free",
            1.0,
            "d0",
            "r0-d0",
            "used",
            {"kind": kind, "block_ids": blocks, **evidence},
        )
        wrong, found = group([after_free, wrong_bytes(0, extent=EXTENT, not_listed=1)])
        assert wrong.oracle == "wrong-bytes"  # says more, so it comes first
        assert wrong.note == ""
        return found.sentence

    assert said("stale-read", [8, 9], source_node="p0") == (
        "used (wrong-bytes names block 12 too: docs/violations.md says why)"
    )
    assert said("stale-read", [8, 9, 12, 13, 14], source_node="p0") == (
        "used (blocks 13-14 are listed here only: the pass found no wrong bytes there)"
    )
    assert said("shared-block", [8]) == (
        "used (wrong-bytes names blocks 9, 12 too: docs/violations.md says why)"
    )
    assert said("stale-read", [8], source_node="p0", not_listed=1) == "used (1 more like this)"
    assert said("stale-read", [12, 9, 8], source_node="p0") == "used"


def test_who_wrote_over_a_transfer_is_told() -> None:
    """Else the sentence would point at the transfer."""
    extent = {**EXTENT, "overwritten": [[1_500_000_000, 8, "drafts of r5-d0 on d0"]]}
    (found,) = group([wrong_bytes(0, extent=extent, not_listed=1)])
    assert (
        "of p0; written to after that transfer: block 8 at 1.500000 s by drafts of r5-d0 on d0; p0"
    ) in found.sentence


def test_what_nobody_owns_or_sent_is_not_invented() -> None:
    """Zeros have no owner, and bytes that were written here have no source."""
    extent = {**EXTENT, "owners": [], "source_nodes": [], "source_block_ids": [], "ranks": [0, 1]}
    (found,) = group([wrong_bytes(0, extent=extent, not_listed=3)])
    assert found.sentence.startswith("d0 ranks 0, 1 read wrong bytes for r0-d0: 4 layers")
    assert "found" not in found.sentence
    assert "copied" not in found.sentence


def test_zeros_are_said_to_be_found() -> None:
    """Also where only the first of many findings had the word."""
    extent = {**EXTENT, "owners": [], "found": ["zeros"], "source_nodes": []}
    (found,) = group([wrong_bytes(0, extent={**extent, "source_block_ids": []}, not_listed=3)])
    assert "tokens 0-47; found zeros" in found.sentence


def test_a_single_finding_keeps_its_own_words() -> None:
    """Nothing is gained by folding one."""
    (found,) = group([wrong_bytes(0, extent=EXTENT)])
    assert found.sentence == wrong_bytes(0).detail


def test_findings_about_different_requests_nodes_or_kinds_stay_apart() -> None:
    """Only what is one finding is folded; the rest is counted."""
    leak = Violation("leak", 2.0, "p0", None, "p0 at rest: ...", {"not_listed": 2})
    slow = Violation("bounded-waiting", 2.0, "d0", None, "slow", {"kind": "slow-step"})
    stuck = Violation("bounded-waiting", 2.0, "d0", None, "stuck", {"kind": "stuck-step"})
    groups = group([leak, slow, stuck])
    assert [found.sentence for found in groups] == [
        "p0 at rest: ... (2 more like this)",
        "slow",
        "stuck",
    ]
