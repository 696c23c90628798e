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
from faults.plural import counted
from faults.replay import in_words
from faults.story import NO_RULE, Moment, subject_of, tell
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.oracles.base import NORMAL_OUTCOMES
from sim.oracles.same_output import SameOutput
from sim.request_ids import logical_id
from sim.scenario import Scenario
from sim.scenario.workloads import EPILOGUE

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
_NOT_SENT = "not sent"

_Wrong = dict[str, Any]
"""The evidence on a wrong answer."""


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


def apart(a: Side, b: Side) -> list[str]:
    """What makes the two no runs of one scenario, by its keys; [] if they are."""
    names = ("model", "geometry", "topology", "workload")
    return [name for name in names if getattr(a.scenario, name) != getattr(b.scenario, name)]


def are_comparable(a: Side, b: Side) -> bool:
    """Whether their histories can be compared: of one scenario, or with a request, of the same name
    and lengths, that arrived on both sides."""
    if not apart(a, b):
        return True
    arrived = [
        [tuple(r.fields.values()) for r in side.records if r.kind == "request-arrived"]
        for side in (a, b)
    ]
    return any(request in arrived[1] for request in arrived[0] if not _is_epilogue(request))


def _is_epilogue(request: tuple[Any, ...]) -> bool:
    return str(request[0]).startswith(EPILOGUE)


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
    both = {name: (one.get(name, _NOT_SENT), other.get(name, _NOT_SENT)) for name in one | other}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


def outputs(a: Side, b: Side) -> dict[str, tuple[int, str, str]]:
    """The requests that were answered on both sides, and differently: the first output token that
    differs, and what it is on either; as far as violations tell.

    Empty where the sides were not asked the same: their prompts, or their models, differ.
    """
    if _asked(a) != _asked(b):
        return {}
    wrong = [_wrong_answers(side) for side in (a, b)]
    answered = _answered(a) & _answered(b)
    both = {
        name: _first_difference(wrong[0].get(name), wrong[1].get(name))
        for name in dict.fromkeys([*wrong[0], *wrong[1]])
        if name in answered
    }
    return {name: first for name, first in both.items() if first is not None}


def stories(a: Side, b: Side) -> tuple[list[Moment], list[Moment]]:
    """How each run came about: of its own violation, or of the same requests as the other's."""
    own_a, own_b = a.artifact.violations, b.artifact.violations
    if (own_a and own_b) or not are_comparable(a, b):
        return tell(a.records, own_a), tell(b.records, own_b)
    about = own_a or own_b or _about(a, b)
    requests = subject_of(about, (a if own_a else b).records).requests if about else {}
    same = [_of_the_same(violation) for violation in about]
    return (
        tell(a.records, own_a or same, requests),
        tell(b.records, own_b or same, requests),
    )


def _of_the_same(violation: Violation) -> Violation:
    """For the other side: its transfers and blocks have numbers of their own."""
    return msgspec.structs.replace(violation, oracle=NO_RULE, evidence={})


def _about(a: Side, b: Side) -> list[Violation]:
    """Where no rule was broken: the request that ended in two ways, or that the parting names."""
    requests = [*ends(a, b)]
    for one, other in zip_longest(_compared(a, b), _compared(b, a)):
        if one != other:
            named = [r.fields.get("request") for r in (one, other) if r is not None]
            requests += [logical_id(str(name)) for name in named if name]
            break
    return [Violation(NO_RULE, 0.0, None, name, "", {}) for name in requests[:1]]


def is_all_compared(a: Side, b: Side) -> bool:
    """Whether also what connectors did is compared, and not only engines, router and faults."""
    return a.scenario.connector == b.scenario.connector


def _compared(side: Side, other: Side) -> Iterator[Record]:
    same = is_all_compared(side, other)
    for record in side.records:
        if record.kind not in _ARMING and (same or record.kind in _OF_ANY_CONNECTOR):
            yield record


def _outcomes(side: Side) -> dict[str, str]:
    """Of every request that was sent, in the order in which they ended, then of the others."""
    outcomes: dict[str, str] = {}
    arrived: list[str] = []
    for record in side.records:
        fields = record.fields
        if record.kind == "request-arrived":
            arrived.append(fields["request"])
        elif record.kind == "request-ended":
            told = f"{fields['outcome']} ({counted(fields['tokens'], 'token')})"
            outcomes[fields["request"]] = told
    return {**outcomes, **{name: "not ended" for name in arrived if name not in outcomes}}


def _asked(side: Side) -> tuple[Any, ...]:
    """All that right answers depend on."""
    scenario = side.scenario
    return scenario.model, scenario.geometry, scenario.seed, scenario.workload


def _answered(side: Side) -> set[str]:
    """Requests that ended as their clients wanted, if perhaps with wrong tokens."""
    return {
        record.fields["request"]
        for record in side.records
        if record.kind == "request-ended" and record.fields["outcome"] in NORMAL_OUTCOMES
    }


def _wrong_answers(side: Side) -> dict[str, _Wrong]:
    """The evidence on each request whose answer was not the model's, the first where it had
    several samples."""
    wrong: dict[str, _Wrong] = {}
    for violation in side.artifact.violations:
        if violation.oracle == SameOutput.name and violation.request_id is not None:
            wrong.setdefault(violation.request_id, violation.evidence)
    return wrong


def _first_difference(one: _Wrong | None, other: _Wrong | None) -> tuple[int, str, str] | None:
    """Of two answers, of which None is the right one; None if all tokens that are known are equal:
    of a wrong answer the first few that are not right."""
    if one and other and one["first_difference"] == other["first_difference"]:
        both = zip_longest(one["tokens"], other["tokens"])
        for place, (token, another) in enumerate(both, start=one["first_difference"]):
            if token != another:
                return place, _token(token), _token(another)
        return None
    if one and (other is None or one["first_difference"] < other["first_difference"]):
        return one["first_difference"], *_wrong_and_right(one)
    assert other is not None
    wrong, right = _wrong_and_right(other)
    return other["first_difference"], right, wrong


def _wrong_and_right(answer: _Wrong) -> tuple[str, str]:
    """The first token that is not right, and what it should be."""
    first, *_ = zip_longest(answer["tokens"], answer["expected"])
    return _token(first[0]), _token(first[1])


def _token(token: int | None) -> str:
    return "no token" if token is None else str(token)


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
