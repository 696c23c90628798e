"""Violations: what an oracle says when a rule was broken, and the list of all of them.

The list is bounded per place, so that one wrong block does not bury everything else.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from sim.units import ns_to_seconds

_LISTED_PER_PLACE = 3


class Recorder(Protocol):
    """The part of the kernel that findings need: a clock and the event log."""

    @property
    def now_ns(self) -> int:
        """Virtual time."""

    def record(self, kind: str, **fields: Any) -> None:
        """Append to the event log."""


class Violation(msgspec.Struct, frozen=True):
    """One broken rule. ``evidence`` holds plain values; ``not_listed`` in it counts repetitions."""

    oracle: str
    time_s: float
    node: str | None
    request_id: str | None
    detail: str
    evidence: dict[str, Any]


class Findings:
    """Collects violations; every listed one also becomes a record of the event log.

    At most ``per_place`` are listed of each kind (oracle, node, request and, where an oracle
    knows several kinds of violation, ``evidence["kind"]``); the first of them counts the rest.
    """

    def __init__(self, recorder: Recorder, per_place: int = _LISTED_PER_PLACE) -> None:
        self._recorder = recorder
        self._per_place = per_place
        self._by_place: dict[tuple[str | None, ...], list[Violation]] = {}
        self.violations: list[Violation] = []

    def report(
        self,
        oracle: str,
        detail: str,
        *,
        node: str | None = None,
        request_id: str | None = None,
        **evidence: Any,
    ) -> None:
        """Note that ``oracle`` found its rule broken, now."""
        place = (oracle, node, request_id, evidence.get("kind"))
        listed = self._by_place.setdefault(place, [])
        if len(listed) == self._per_place:
            first = listed[0].evidence
            first["not_listed"] = first.get("not_listed", 0) + 1
            return
        time_s = ns_to_seconds(self._recorder.now_ns)
        violation = Violation(oracle, time_s, node, request_id, detail, evidence)
        listed.append(violation)
        self.violations.append(violation)
        self._recorder.record(
            "violation", oracle=oracle, node=node, request=request_id, detail=detail
        )
