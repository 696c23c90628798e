from __future__ import annotations

from typing import Any

from faults.story import MAX_MOMENTS, tell
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.units import MS


class Log:
    """Records at one millisecond each."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, actor: str, kind: str, **fields: Any) -> Log:
        self.records.append(Record(len(self.records) * MS, actor, kind, fields))
        return self

    def held(self, node: str, request: str, *runs: list[int]) -> Log:
        return self.add(
            f"{node}/core/main",
            "blocks-held",
            node=node,
            request=request,
            group=0,
            blocks=list(runs),
        )

    def freed(self, node: str, request: str) -> Log:
        return self.add(f"{node}/core/main", "blocks-freed", node=node, request=request)

    def read(self, uid: int) -> Log:
        fields = {"initiator": "d", "target": "p", "operation": "read", "uid": uid}
        self.add("d0/core/main", "posted", **fields)
        return self.add("hw", "landed", **fields)

    def violation(self, oracle: str, node: str | None, request: str | None) -> Log:
        return self.add(
            "d0/core/main", "violation", oracle=oracle, node=node, request=request, detail="..."
        )


STALE = Violation(
    "use-after-free",
    0.0,
    "d0",
    "r0-d0",
    "...",
    {"kind": "stale-read", "transfer": 7, "source_node": "p0", "source_block_ids": [4, 5]},
)


def texts(log: Log, *violations: Violation) -> list[str]:
    return [moment.text for moment in tell(log.records, violations)]


def test_the_story_says_who_held_freed_got_and_read_the_blocks() -> None:
    """Only what concerns the request and its blocks, in order of time."""
    log = Log()
    log.held("p0", "r0-p0", [4, 5]).held("p0", "other-p0", [20, 29]).freed("p0", "r0-p0")
    log.add("p0/core/main", "log", level="WARNING", module="m", message="reaped one")
    log.add("d1/core/main", "log", level="WARNING", module="m", message="of no concern")
    log.held("p0", "r7-p0", [1, 4]).held("p0", "r8-p0", [5, 6]).held("d0", "r0-d0", [8, 9])
    log.read(6).read(7).held("p0", "r9-p0", [4, 5])
    log.violation("use-after-free", "d0", "r0-d0").held("p0", "r10-p0", [4, 5])
    assert texts(log, STALE) == [
        "p0 gives blocks 4-5 to r0-p0",
        "p0 lets go of the blocks of r0-p0",
        "p0 logs: reaped one",
        "p0 gives block 5 to r8-p0",
        "d0 gives blocks 8-9 to r0-d0",
        "d0 posts an RDMA read from blocks 4-5 of p0 (transfer 7)",
        "the RDMA read of d0 from blocks 4-5 of p0 has landed (transfer 7)",
        "use-after-free is reported for r0-d0",
    ]


def test_whose_bytes_were_found_is_told_even_if_others_had_the_blocks_later() -> None:
    """An owner may have had them before the last holder."""
    extent = {"owners": ["r7"], "source_nodes": ["p0"], "source_block_ids": [4], "transfers": []}
    wrong = Violation("wrong-bytes", 0.0, "d0", "r0-d0", "...", {"extent": extent})
    log = Log().held("p0", "r7-p0", [4, 4]).held("p0", "r8-p0", [4, 4])
    log.violation("wrong-bytes", "d0", "r0-d0")
    assert texts(log, wrong) == [
        "p0 gives block 4 to r7-p0",
        "p0 gives block 4 to r8-p0",
        "wrong-bytes is reported for r0-d0",
    ]


def test_a_long_story_keeps_what_matters() -> None:
    """Legs sent again and again are the first to go; order of time stays."""
    log = Log().held("p0", "r0-p0", [4, 5]).freed("p0", "r0-p0")
    for attempt in range(30):
        log.add("router", "leg-sent", request="r0", leg=f"r0-d{attempt}", node="d0", transfer=None)
    log.read(7).violation("use-after-free", "d0", "r0-d0")
    moments = tell(log.records, [STALE])
    assert len(moments) == MAX_MOMENTS
    assert moments == sorted(moments, key=lambda moment: moment.time_ns)
    kept = [moment.text for moment in moments if "sends" not in moment.text]
    assert len(kept) == 5


def test_a_node_without_a_request_has_a_story_too() -> None:
    """An engine that died: its last words, and the death."""
    died = Violation("liveness", 0.0, "p0", None, "...", {"kind": "engine-died"})
    log = Log()
    for word in ("one", "two", "three", "four"):
        log.add("p0/core/main", "log", level="ERROR", module="m", message=word)
    log.add("p0/core/main", "engine-died", node="p0", reason="KeyError: 3", injected=False)
    log.violation("liveness", "p0", None)
    assert texts(log, died) == [
        "p0 logs: two",
        "p0 logs: three",
        "p0 logs: four",
        "p0 dies: KeyError: 3",
        "liveness is reported for p0",
    ]


def test_without_violations_there_is_nothing_to_tell() -> None:
    """A passing run has no story."""
    assert tell(Log().held("p0", "r0-p0", [1, 2]).records, []) == []
