"""Where two recorded runs part: in what they were given, in their histories, in what came of it.

Of runs with different connectors only what engines, router and faults did is compared: the messages
and transfers of two connectors have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from faults import artifact
from faults.artifact import Artifact
from faults.replay import in_words
from faults.story import Moment, subject_of, tell
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.request_ids import logical_id
from sim.scenario import Scenario

_OF_ANY_CONNECTOR = (
    "request-arrived",
    "request-retried",
    "request-ended",
    "hand-off-held",
    "hand-off-lost",
    "leg-sent",
    "leg-finished",
    "blocks-held",
    "blocks-freed",
    "forward-began",
    "engine-started",
    "engine-died",
    "fault-hit",
    "violation",
)


_ARMING = ("fault-struck", "fault-healed")  # what was given differs, and nothing has come of it

_LONGEST = 120


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    directory: Path
    scenario: Scenario
    artifact: Artifact
    records: list[Record]

    @classmethod
    def read(cls, path: Path) -> Side:
        """The artifact at ``path``; UsageError if it is none, or was edited."""
        directory = artifact.find(path)
        scenario, recorded = artifact.read(directory)
        return cls(directory, scenario, recorded, artifact.read_records(directory, recorded))


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """The first records that differ, in words; ``number`` counts those that are compared from 1."""

    number: int
    time_s: float
    before: str | None
    a: str
    b: str


def given(a: Side, b: Side) -> list[str]:
    """What the runs were given that differs: keys of the scenario, versions, sources."""
    scenarios = [_flat(msgspec.to_builtins(side.scenario)) for side in (a, b)]
    versions = [side.artifact.versions for side in (a, b)]
    sources = [{"sources under test": side.artifact.guest_digest} for side in (a, b)]
    return [
        f"{key}: {_short(one.get(key))} and {_short(other.get(key))}"
        for one, other in (scenarios, versions, sources)
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
    ]


def parting(a: Side, b: Side) -> Parting | None:
    """Where the histories part; None if all records that are compared are equal."""
    before = None
    both = zip_longest(_compared(a, b), _compared(b, a))
    for number, (one, other) in enumerate(both, start=1):
        if one != other:
            first = min((r for r in (one, other) if r is not None), key=lambda r: r.time_ns)
            return Parting(
                number=number,
                time_s=first.time_ns / 1e9,
                before=None if before is None else _shown(before),
                a=_shown(one),
                b=_shown(other),
            )
        before = one
    return None


def ends(a: Side, b: Side) -> dict[str, tuple[str, str]]:
    """How each request ended that ended in two ways."""
    one, other = _outcomes(a), _outcomes(b)
    requests = dict.fromkeys([*one, *other])
    both = {name: (one.get(name, "not ended"), other.get(name, "not ended")) for name in requests}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


def stories(a: Side, b: Side) -> tuple[list[Moment], list[Moment]]:
    """How each run came about: of its own violation, or of the same requests as the other's."""
    own_a, own_b = a.artifact.violations, b.artifact.violations
    if own_a and own_b:
        return tell(a.records, own_a), tell(b.records, own_b)
    about = own_a or own_b or _about(a, b)
    requests = subject_of(about, (a if own_a else b).records).requests if about else {}
    return tell(a.records, about, requests), tell(b.records, about, requests)


def _about(a: Side, b: Side) -> list[Violation]:
    """Where no rule was broken: the request that ended in two ways, or that the parting names."""
    requests = [*ends(a, b)]
    for one, other in zip_longest(_compared(a, b), _compared(b, a)):
        if one != other:
            named = [r.fields.get("request") for r in (one, other) if r is not None]
            requests += [logical_id(str(name)) for name in named if name]
            break
    return [Violation("difference", 0.0, None, name, "", {}) for name in requests[:1]]


def _compared(side: Side, other: Side) -> Iterator[Record]:
    same = side.scenario.connector == other.scenario.connector
    for record in side.records:
        if record.kind not in _ARMING and (same or record.kind in _OF_ANY_CONNECTOR):
            yield record


def _outcomes(side: Side) -> dict[str, str]:
    return {
        record.fields["request"]: f"{record.fields['outcome']} ({record.fields['tokens']} tokens)"
        for record in side.records
        if record.kind == "request-ended"
    }


def _shown(record: Record | None) -> str:
    return "nothing more" if record is None else in_words(record.as_dict())


def _short(text: str | None) -> str:
    return "none" if text is None else text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _flat(value: Any, path: str = "") -> dict[str, str]:
    """Values by dotted keys, as JSON."""
    if isinstance(value, dict) and value:
        parts = [
            _flat(inner, f"{path}.{key}" if path else str(key)) for key, inner in value.items()
        ]
        return {key: text for part in parts for key, text in part.items()}
    return {path: msgspec.json.encode(value).decode()}
