"""Who had the blocks of a finding before, who wrote to them last, and what was read of them."""

from __future__ import annotations

from typing import Any

from story_world import Log, texts

from faults.report.focus import focus_on
from faults.report.happenings import happenings
from faults.story import MAX_MOMENTS
from sim.oracles import Violation
from sim.units import MS

DRAFTER = "the drafter of r7-d0 on d0"
WRITTEN = f"block 16 is written to by {DRAFTER}, after the transfer into it"
GONE = "d0 lets go of the blocks of r7-d0, block 16 among them"


def wrong(**extent: Any) -> Violation:
    """Wrong bytes in block 16 of d0, where transfer 1 had put block 5 of p0."""
    whole = {
        "block_ids": [16],
        "owners": ["r7-d0"],
        "source_nodes": ["p0"],
        "source_block_ids": [5],
        "copied": [[16, 5]],
        "transfers": [1],
    }
    return Violation("wrong-bytes", 0.03, "d0", "r0-d0", "...", {"extent": {**whole, **extent}})


def handed_on(*given: list[int]) -> Log:
    """Blocks 1-16 of d0 are of r7 before two of them are of r0, into which p0's are read."""
    log = Log().held("p0", "r0-p0", *given).held("d0", "r7-d0", [1, 16]).freed("d0", "r7-d0")
    return log.held("d0", "r0-d0", [15, 16]).read(1)


def test_who_had_an_overwritten_block_before_and_wrote_to_it_stays_in_a_long_story() -> None:
    """However much there is to tell that weighs less, such as who let go of what afterwards."""
    log = handed_on([5, 6])
    for attempt in range(MAX_MOMENTS):
        log.freed("p0", f"r0-p{attempt}")
    log.violation("wrong-bytes", "d0", "r0-d0")
    told = texts(log, wrong(overwritten=[[5 * MS, 16, DRAFTER]]))
    assert len(told) == MAX_MOMENTS
    assert [text for text in told if text in (GONE, WRITTEN)] == [GONE, WRITTEN]


def test_who_had_a_block_before_is_told_where_no_transfer_brought_its_bytes() -> None:
    """What a transfer brought is not of whoever had the block before it."""
    log = handed_on([5, 6])
    assert GONE in texts(log, wrong(copied=[]))
    assert not [text for text in texts(log, wrong()) if "r7" in text]


def test_who_wrote_last_to_a_block_that_no_transfer_reached_is_told() -> None:
    """What a transfer wrote is told as one, and a write after it by that name."""
    log = handed_on([5, 6])
    for copied, writer, told in (
        ([], DRAFTER, [f"block 16 is last written to by {DRAFTER}"]),
        ([], "transfer 1", []),
        ([[16, 5]], DRAFTER, []),
    ):
        found = wrong(copied=copied, transfers=[], source_block_ids=[])
        found.evidence["chain"] = [f"block 16 was last written at 0.001500 s by {writer}", "..."]
        assert [text for text in texts(log, found) if "written" in text] == told


def test_a_late_write_is_told_with_whom_it_was_for() -> None:
    """Whoever had the blocks when it was posted."""
    evidence = {"kind": "write-after-free", "transfer": 1, "block_ids": [16]}
    late = Violation("use-after-free", 0.03, "d0", "r0-d0", "...", evidence)
    assert GONE in texts(handed_on([5, 6]), late)


def test_who_had_a_source_block_before_is_told_if_its_bytes_were_found() -> None:
    """Read too early, before the prefill had written to it; others left nothing to find."""
    log = Log().held("p0", "r7-p0", [1, 9]).freed("p0", "r7-p0").held("p0", "r0-p0", [4, 5])
    gone = "p0 lets go of the blocks of r7-p0, block 5 among them"
    assert gone in texts(log.read(1), wrong(owners=["r7"]))
    assert gone not in texts(log, wrong(owners=["r6"]))


def test_a_read_is_said_to_be_of_the_named_blocks_if_there_were_no_others() -> None:
    """Otherwise it includes them: findings name what was wrong of it."""
    for given, what in (([5, 5], "from block 5 of p0"), ([5, 6], "from p0 that includes block 5")):
        told = [text for text in texts(handed_on(given), wrong()) if "RDMA" in text]
        assert told == [
            f"d0 posts an RDMA read {what} (transfer 1)",
            f"the RDMA read of d0 {what} has landed (transfer 1)",
        ]


def test_a_write_after_the_transfer_is_drawn_where_it_happened() -> None:
    """On the rank whose block it was, with all that happened to the leg that wrote."""
    log = Log().sent("r7-d0", "d0").sent("r0-d0", "d0")
    log.records += handed_on([5, 6]).records
    found = wrong(overwritten=[[5 * MS, 16, DRAFTER]])
    found.evidence["rank"] = 1
    records = [record._replace(fields={"bytes": 9, **record.fields}) for record in log.records]
    shown, _ = happenings(records, focus_on(records, [found]))
    (write,) = [happening for happening in shown if happening.text == WRITTEN]
    assert (write.time_ns, write.lane, write.style) == (5 * MS, ("d0", "rank 1"), "wrong")
    ends = [happening.end_text for happening in shown if happening.to and happening.end_text]
    assert ends == ["read landed, including block 5 of p0 into block 16 of d0"]
    assert "d0 lets go of the blocks of r7-d0" in [happening.text for happening in shown]
