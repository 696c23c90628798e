"""What each fault did to the requests that it reached: cause as logged, recovery, and the end.

Of log lines the first about each request is told, and the first that names none.

Like a story it words records and concludes nothing. Requests of which the same is to be told are
told together, from the first one's time to the last one's. Of many that went different ways only
the first few are told in full, of the others how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from faults.story.moment import Moment, explained
from faults.story.names import requests_named, said, some_of, whole, without_requests
from sim.kernel.log import Record
from sim.request_ids import leg_kind, logical_id
from sim.units import ns_to_seconds

_GROUPS_SHOWN = 3
_WELL = ("length", "stop")


@dataclass
class _Effect:
    """One request that a fault reached; ``told`` maps sentences to their times."""

    request: str
    phases: list[str]
    time_ns: int
    told: dict[str, int] = field(default_factory=dict)
    is_logged: bool = False
    load_failed: bool = False
    recomputes: bool = False

    def alike(self, requests: Container[str]) -> tuple[str, ...]:
        """What is told, but for the names of ``requests`` in log lines."""
        return tuple(without_requests(text, requests) for text in self.told)

    def tell(self, record: Record, text: str) -> None:
        self.told.setdefault(text, record.time_ns)


class _Fault:
    """One fault of the scenario: the engines and the requests that it reached."""

    def __init__(self) -> None:
        self.effects: dict[str, _Effect] = {}
        self.nodes: dict[str, None] = {}
        self.own: list[Moment] = []
        self.is_logged = False
        self.is_over = False

    def moments(self) -> list[Moment]:
        told = [*self._reached(), *self._followed()]
        return explained(sorted([*self.own, *told], key=lambda moment: moment.time_ns))

    def _reached(self) -> Iterator[Moment]:
        for group in _grouped(self.effects.values(), lambda effect: tuple(effect.phases)):
            phases = ", ".join(group[0].phases) or "in no phase"
            times = [effect.time_ns for effect in group]
            yield _spanning(times, f"reaches {_who(group)} ({phases})")

    def _followed(self) -> Iterator[Moment]:
        groups = _grouped(self.effects.values(), lambda effect: effect.alike(self.effects))
        for group in groups[:_GROUPS_SHOWN]:
            columns = zip(*(effect.told.values() for effect in group), strict=True)
            for text, of_each in zip(group[0].told, columns, strict=True):
                yield _spanning(of_each, f"{_who(group)}: {text}")
        others = [effect for group in groups[_GROUPS_SHOWN:] for effect in group if effect.told]
        for group in _grouped(others, lambda effect: (list(effect.told)[-1],)):
            times = [list(effect.told.values())[-1] for effect in group]
            yield _spanning(times, f"{_who(group)}: {list(group[0].told)[-1]}")


def _grouped(
    effects: Iterable[_Effect], key: Callable[[_Effect], tuple[str, ...]]
) -> list[list[_Effect]]:
    groups: dict[tuple[str, ...], list[_Effect]] = {}
    for effect in effects:
        groups.setdefault(key(effect), []).append(effect)
    return list(groups.values())


def _spanning(times: Sequence[int], text: str) -> Moment:
    """A line about what happened to several requests, each at its own time."""
    first_ns, last_ns = min(times), max(times)
    if first_ns == last_ns:
        return Moment(first_ns, text, 0)
    span = f"{ns_to_seconds(first_ns):.6f} to {ns_to_seconds(last_ns):.6f} s"
    return Moment(first_ns, f"{text} ({span})", 0)


def _who(group: list[_Effect]) -> str:
    return some_of([effect.request for effect in group])


def aftermaths(faults: int, records: Sequence[Record]) -> list[list[Moment]]:
    """For each of so many faults of a run what it did, in order of time; [] if it did nothing."""
    known = {r.fields["request"] for r in records if r.kind == "request-arrived"}
    told = [_Fault() for _ in range(faults)]
    for record in records:
        if record.kind == "fault-hit":
            _hit(told[record.fields["fault"]], record)
        elif record.kind == "log" and not requests_named(str(record.fields["message"]), known):
            _logged(told, record)
        elif record.kind == "fault-healed":
            _healed(told[record.fields["fault"]], record)
        elif record.kind == "engine-started":
            _restarted(told, record)
        else:
            for request, text in _said(record, known):
                _tell(told, record, request, text)
    return [fault.moments() for fault in told]


def _hit(fault: _Fault, record: Record) -> None:
    if node := record.fields.get("node"):
        fault.nodes[node] = None
    for request, phases in record.fields["requests"].items():
        fault.effects.setdefault(request, _Effect(request, phases, record.time_ns))


def _healed(fault: _Fault, record: Record) -> None:
    if fault.effects:
        fault.own.append(Moment(record.time_ns, "is healed", 0))
        fault.is_over = True


def _logged(told: list[_Fault], record: Record) -> None:
    """The first line after a fault has struck that names no request, such as of a connection."""
    if (text := _line(record)) is None:
        return
    for fault in told:
        if fault.effects and not fault.is_over and not fault.is_logged:
            fault.is_logged = True
            fault.own.append(Moment(record.time_ns, text, 0))


def _line(record: Record) -> str | None:
    """A log line in words; None if it is no warning, or a mere appendix."""
    if record.fields["level"] not in ("WARNING", "ERROR", "CRITICAL"):
        return None
    text = said(str(record.fields["message"]))
    node = record.actor.partition("/")[0]
    return None if text is None else f"{node} logs: {whole(text)}"


def _restarted(told: list[_Fault], record: Record) -> None:
    node = record.fields["node"]
    for fault in told:
        if node in fault.nodes:
            fault.own.append(Moment(record.time_ns, f"{node} starts again", 0))


def _tell(told: list[_Fault], record: Record, request: str, text: str) -> None:
    for fault in told:
        effect = fault.effects.get(request)
        if effect is None:
            continue
        if record.kind == "log":
            if effect.is_logged:
                continue
            effect.is_logged = True
        if record.kind == "forward-began":
            if not effect.load_failed or effect.recomputes:
                continue
            effect.recomputes = True
        effect.load_failed |= record.kind == "receiving-finished" and record.fields["failed"]
        effect.tell(record, text)


def _said(record: Record, known: set[str]) -> Iterator[tuple[str, str]]:
    """What a record says of which request."""
    fields = record.fields
    match record.kind:
        case "log":
            if text := _line(record):
                for request in requests_named(str(fields["message"]), known):
                    yield request, text
        case "receiving-finished":
            how = "failed" if fields["failed"] else "complete"
            yield logical_id(fields["request"]), f"{fields['node']} reports the load as {how}"
        case "forward-began":
            for leg, start, _end in fields["requests"]:
                if leg_kind(leg) == "d":
                    yield logical_id(leg), f"{fields['node']} computes its tokens from {start} on"
        case "leg-finished" if fields["outcome"] not in _WELL and leg_kind(fields["leg"]) == "p":
            yield fields["request"], f"its prefill ends with {fields['outcome']!r}"
        case "request-retried":
            yield fields["request"], "the router sends it again"
        case "request-ended":
            how = "ends well" if fields["outcome"] in _WELL else "ends"
            yield fields["request"], f"{how}, with {fields['outcome']!r}"
