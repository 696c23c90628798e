from __future__ import annotations

from typing import Any

from faults.story import tell
from faults.struck import fault_sentences
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.units import MS

DIED = Violation("liveness", 0.0, None, "r0", "...", {"kind": "not-ended"})


def record(at_ms: int, event: str, fault: int, kind: str = "f", **fields: Any) -> Record:
    return Record(
        at_ms * MS, "nemesis", f"fault-{event}", {"fault": fault, "fault_kind": kind, **fields}
    )


RECORDS = [
    record(1, "struck", 0),
    record(2, "healed", 0),
    record(3, "struck", 0),
    record(4, "healed", 0),
    record(5, "struck", 2, request="r0"),
    record(205, "hit", 2, requests={"r0": ["prefill"]}),
    record(206, "hit", 2, requests={}),
    record(207, "struck", 3, kind="g"),
    record(207, "hit", 3, kind="g", requests={}),
    record(208, "struck", 4, kind="h"),
    record(208, "missed", 4, kind="h", reason="no card"),
    record(209, "struck", 6, kind="k"),
]


def test_the_facts_say_how_late_and_how_often_each_fault_hit() -> None:
    """Also what never hit, and what was never armed; faults of one kind are told apart."""
    assert fault_sentences(["f", "f", "f", "g", "h", "i", "k"], RECORDS) == [
        "f (no. 1): was armed 2 times, first at 0.001000 s, and struck nothing",
        "f (no. 2): its moment did not come",
        "f (no. 3): hit 2 times, first at 0.205000 s, 200 ms after it was armed; "
        "reached r0 (prefill)",
        "g: hit once, at 0.207000 s; reached no request",
        "h: could not strike, no card",
        "i: its moment did not come",
        "k: was armed once, at 0.209000 s, and struck nothing",
    ]


def test_the_story_says_which_engine_starts_again() -> None:
    """In one line with the healing if that brings it back; of other faults there it is not said."""

    def crash(started_ms: int) -> list[str]:
        started = {"node": "p0", "incarnation": 1}
        records = [
            Record(0, "p0/core/main", "engine-started", {**started, "incarnation": 0}),
            record(1, "struck", 0, kind="crash"),
            record(1, "hit", 0, kind="crash", node="p0", requests={"r0": ["prefill"]}),
            Record(MS, "hw", "engine-died", {"node": "p0", "reason": "crashed", "injected": True}),
            record(2, "struck", 1, kind="slow"),
            record(2, "hit", 1, kind="slow", node="p0", requests={"r0": ["prefill"]}),
            record(5, "healed", 0, kind="crash"),
            Record(started_ms * MS, "d0/core/main", "engine-started", {**started, "node": "d0"}),
            Record(started_ms * MS, "p0/core/main", "engine-started", started),
        ]
        return [moment.text for moment in tell(records, [DIED])]

    struck = ["fault crash has struck p0, for r0", "fault slow has struck p0, for r0"]
    healed = "fault crash has been healed"
    assert crash(5) == [*struck, f"{healed}: p0 starts again"]
    assert crash(6) == [*struck, healed, "p0 starts again"]


def test_the_story_says_the_same_of_its_requests() -> None:
    """What hits nothing has one line, however often it is armed."""
    assert [moment.text for moment in tell(RECORDS, [DIED])] == [
        "fault f (no. 1) is armed 2 times from now on, and hits nothing",
        "fault f (no. 3) is armed, for r0",
        "fault f (no. 3) has struck, for r0, 200 ms after it was armed (hit 1 of 2)",
        "fault g has struck",
        "fault h could not strike: no card",
        "fault k is armed, and hits nothing",
    ]
