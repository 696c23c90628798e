from __future__ import annotations

import pytest

from faults.report.focus import focus_on
from faults.report.happenings import happenings
from faults.story import tell
from faults.story.reads import with_other_layers
from sim.kernel.log import Record
from sim.oracles import Violation

MS, US = 1_000_000, 1_000
EXTENT = {
    "ranks": [0], "layers": ["0", "1", "2", "3"], "block_ids": [8], "tokens": [0, 15],
    "owners": ["r7"], "source_nodes": ["p0"], "source_block_ids": [4], "transfers": [4],
}  # fmt: skip
STALE = Violation("use-after-free", 0.03, "d0", "r0-d0", "...", {"transfer": 1})
WRONG = Violation("wrong-bytes", 0.03, "d0", "r0-d0", "...", {"extent": EXTENT})


def given(at_ms: int, leg: str) -> Record:
    fields = {"node": "d0", "request": leg, "group": 0, "blocks": [[8, 8]]}
    return Record(at_ms * MS, "d0/core/main", "blocks-held", fields)


def posted(at_ms: int, *uids: int) -> list[Record]:
    fields = {"initiator": "d", "target": "p", "operation": "read", "bytes": 9}
    return [
        Record(at_ms * MS + place * 5 * US, actor, kind, {**fields, "uid": uid})
        for place, uid in enumerate(uids)
        for kind, actor in (("posted", "d0/core/main"), ("landed", "hw"))
    ]


@pytest.mark.parametrize(
    ("legs", "layers", "named", "whole"),
    [
        (["r0-d0"], 0, [1], [1, 2, 3, 4]),
        (["r0-d0"], 4, [4], [1, 2, 3, 4]),
        (["r0-d0", "r1-d0"], 4, [1, 4], [1, 2, 3, 4]),
        (["r0-d0", "r1-d0"], 4, [4], [4]),
        (["r0-d0", "r1-d0"], 2, [1, 4], [1, 4]),
    ],
)
def test_a_read_has_the_layers_that_findings_do_not_name(
    legs: list[str], layers: int, named: list[int], whole: list[int]
) -> None:
    """All that was posted in the same go for the only request; beside another's only what is
    between two that are named, if that is not more than there are layers."""
    records = [given(1, "r9-d0"), *posted(2, 0), *(given(3, leg) for leg in legs)]
    records += [*posted(4, 1, 2, 3, 4), *posted(5, 5)]
    assert with_other_layers(records, named, ["d0"], layers) == whole
    assert with_other_layers(records, named, ["d1"], layers) == []


def test_a_read_with_its_layers_is_told_and_drawn_as_one() -> None:
    """Though one rule names its first transfer, and another its last."""
    records = [given(1, "r0-d0"), *posted(2, 1, 2, 3, 4)]
    told = [moment.text for moment in tell(records, [STALE, WRONG])]
    what = "from block 4 of p0"
    assert told[1:] == [
        f"d0 posts an RDMA read of 4 layers {what} (transfers 1-4)",
        f"the last part of the RDMA read of d0 {what} lands (transfers 1-4)",
    ]
    leg = {"request": "r0", "leg": "r0-d0", "node": "d0"}
    records = [Record(0, "router", "leg-sent", leg), *records]
    shown, _ = happenings(records, focus_on(records, [STALE, WRONG]))
    (arrow,) = [h for h in shown if h.style in ("transfer", "wrong")]
    assert arrow.style == "wrong"
    assert arrow.text == "RDMA read of 4 layers posted by d0/core: 36 bytes, transfers 1-4"
