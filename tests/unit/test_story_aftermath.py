from __future__ import annotations

from typing import Any

from faults.story import aftermaths
from faults.story.names import requests_named
from sim.kernel.log import Record
from sim.units import MS


class Log:
    """Records at one millisecond each, of requests r1 to r12."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        for number in range(1, 13):
            self.add("router", "request-arrived", request=f"r{number}")

    def add(self, actor: str, kind: str, **fields: Any) -> Log:
        self.records.append(Record(len(self.records) * MS, actor, kind, fields))
        return self

    def hit(self, *requests: str, fault: int = 0, **fields: Any) -> Log:
        phases = {request: ["read_posted"] for request in requests}
        return self.add("nemesis", "fault-hit", fault=fault, requests=phases, **fields)

    def log(self, message: str) -> Log:
        return self.add("d0/core/main", "log", level="ERROR", module="m", message=message)

    def load_failed(self, request: str) -> Log:
        fields = {"node": "d0", "rank": 0, "request": f"{request}-d0", "failed": True}
        return self.add("d0/core/main", "receiving-finished", **fields)

    def forward(self, *legs: tuple[str, int, int]) -> Log:
        return self.add("d0/core/main", "forward-began", node="d0", rank=0, requests=list(legs))

    def ended(self, request: str, outcome: str) -> Log:
        return self.add("router", "request-ended", request=request, outcome=outcome, tokens=1)


def texts(log: Log, faults: int = 1) -> list[list[str]]:
    return [[moment.text for moment in told] for told in aftermaths(faults, log.records)]


def test_a_fault_is_told_with_its_cause_the_recovery_and_the_end() -> None:
    """What is said of other requests, and of the struck one before, is left out."""
    log = Log().log("r1-d0 is early").hit("r1").log("r2-d0 is not struck")
    log.log('{"event": "load-failed", "reason": "retries", "request": "r1-d0"}')
    log.log('{"event": "flight-record", "request": "r1-d0"}').log("one more word on r1-d0")
    log.log("a connection is renewed").log("and another")
    log.load_failed("r1").load_failed("r2").forward(("r1-d0", 16, 40), ("r2-d0", 0, 9))
    log.forward(("r1-d0", 40, 41)).ended("r2", "error").ended("r1", "length")
    log.add("nemesis", "fault-healed", fault=0)
    assert texts(log) == [
        [
            "reaches r1 (read_posted)",
            "r1: d0 logs: load-failed: retries",
            "d0 logs: a connection is renewed",
            "r1: d0 reports the load as failed",
            "r1: d0 computes its tokens from 16 on",
            "r1: ends well, with 'length'",
            "is healed",
        ]
    ]


def test_requests_of_which_the_same_is_to_be_told_are_told_together() -> None:
    """And when there are many different ones, of the last it is told how it ended."""
    log = Log().hit(*(f"r{n}" for n in range(1, 13)), node="p0")
    for number in range(1, 8):
        log.ended(f"r{number}", "length")
    for number, outcome in ((8, "error"), (9, "abort"), (10, "engine-died"), (11, "unfinished")):
        log.ended(f"r{number}", outcome)
    log.add("p0/core/main", "engine-started", node="p0", incarnation=1)
    assert texts(log) == [
        [
            "reaches r1, r2, r3 and 9 more (read_posted)",
            "r1, r2, r3 and 4 more: ends well, with 'length' (0.013000 to 0.019000 s)",
            "r8: ends, with 'error'",
            "r9: ends, with 'abort'",
            "r10: ends, with 'engine-died'",
            "r11: ends, with 'unfinished'",
            "p0 starts again",
        ]
    ]


def test_a_line_about_several_requests_says_from_when_to_when() -> None:
    """What was shared and happened at once has one time; nothing is cut but a dump."""
    log = Log().hit("r1").hit("r2").log("r1-d0 and r2-d0:\n" + "x" * 900)
    log.ended("r2", "length").ended("r1", "length")
    assert texts(log) == [
        [
            "reaches r1, r2 (read_posted) (0.012000 to 0.013000 s)",
            f"r1, r2: d0 logs: r1-d0 and r2-d0: {'x' * 900}",
            "r1, r2: ends well, with 'length' (0.015000 to 0.016000 s)",
        ]
    ]
    dump = Log().hit("r1").log("r1-d0 " + "y" * 5_000)
    assert texts(dump)[0][1].endswith("yy... (4006 characters more)")


def test_a_fault_that_reached_nothing_has_no_aftermath() -> None:
    """Every fault has its own list, in the scenario's order."""
    log = Log().hit("r1", fault=1).ended("r1", "length")
    assert texts(log, faults=3) == [
        [],
        ["reaches r1 (read_posted)", "r1: ends well, with 'length'"],
        [],
    ]


def test_a_log_line_names_requests_by_legs_and_transfers_too() -> None:
    """A longer name is not taken for a shorter one, and addresses are no part of a name."""
    known = {"r1", "r12", "a-b"}
    addressed = f"___prefill_addr_host:1_decode_addr_host:2_{'0' * 32}-a-b-d0"
    for message, named in (
        ("Request IDs: {'r1-d0'}", ["r1"]),
        ("transfer tx-r12-0 is gone.", ["r12"]),
        (f"no blocks for {addressed}", ["a-b"]),
        ("r123 and r1x", []),
        ("r12 waits for r1.", ["r12", "r1"]),
    ):
        assert requests_named(message, known) == named
