"""Where two recorded runs part: in what they were given, in their histories, in what came of it.

Of runs with different connectors only what engines, router and faults did is compared: the messages
and transfers of two connectors have nothing in common. They take their own time for these, so all
times differ from the first transfer on, and with them the order in which things happen on different
engines. What tells something is what each engine did, and the router for each request, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from faults import artifact
from faults.artifact import Artifact
from faults.given import differing, line
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
    """The first records that differ, in words; ``number`` counts those that are compared from 1, of
    different connectors on that engine, or by the router for that request."""

    number: int
    time_s: float
    before: str | None
    a: str
    b: str


def given(a: Side, b: Side) -> list[str]:
    """What the runs were given that differs: keys of the scenario, versions, sources."""
    one, other = (
        {**side.artifact.versions, "sources under test": side.artifact.guest_digest}
        for side in (a, b)
    )
    return [
        *differing(msgspec.to_builtins(a.scenario), msgspec.to_builtins(b.scenario)),
        *(
            line(key, one.get(key), other.get(key))
            for key in dict.fromkeys([*one, *other])
            if one.get(key) != other.get(key)
        ),
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
    """Where the histories part; None if all records that are compared are equal, of different
    connectors but for their times."""
    fork = _fork(a, b)
    if fork is None:
        return None
    return Parting(
        number=fork.number,
        time_s=fork.time_ns / 1e9,
        before=None if fork.before is None else _shown(fork.before),
        a=_shown(fork.one),
        b=_shown(fork.other),
    )


def times_part(a: Side, b: Side) -> float | None:
    """The virtual second from which on only times differ, before the histories of two connectors
    part; None if that does not come first."""
    if is_all_compared(a, b):
        return None
    first, fork = _first_apart(_compared(a, b), _compared(b, a), _whole), _fork(a, b)
    if first is None or (fork is not None and first.time_ns >= fork.time_ns):
        return None
    return first.time_ns / 1e9


@dataclass(frozen=True)
class _Fork:
    """The first two records that are not alike, of which one may be missing, and the last alike."""

    number: int
    before: Record | None
    one: Record | None
    other: Record | None

    @property
    def time_ns(self) -> int:
        return min(r.time_ns for r in (self.one, self.other) if r is not None)


def _fork(a: Side, b: Side) -> _Fork | None:
    if is_all_compared(a, b):
        return _first_apart(_compared(a, b), _compared(b, a), _whole)
    one, other = _by_doer(_compared(a, b)), _by_doer(_compared(b, a))
    forks = [
        _first_apart(one.get(doer, []), other.get(doer, []), _without_time)
        for doer in dict.fromkeys([*one, *other])
    ]
    return min((f for f in forks if f is not None), key=lambda f: f.time_ns, default=None)


def _first_apart(
    one: Iterable[Record], other: Iterable[Record], told: Callable[[Record | None], object]
) -> _Fork | None:
    before = None
    for number, (left, right) in enumerate(zip_longest(one, other), start=1):
        if told(left) != told(right):
            return _Fork(number, before, left, right)
        before = left
    return None


def _whole(record: Record | None) -> object:
    return record


def _without_time(record: Record | None) -> object:
    return None if record is None else (record.kind, record.fields)


def _by_doer(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """What each engine did, and the router for each request, in order."""
    done: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        of_router = record.actor == "router"
        name = record.fields.get("request" if of_router else "node", "")
        done.setdefault((record.actor if of_router else "", str(name)), []).append(record)
    return done


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
    fork = _fork(a, b)
    if fork is not None:
        named = [r.fields.get("request") for r in (fork.one, fork.other) if r is not None]
        requests += [logical_id(str(name)) for name in named if name]
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
