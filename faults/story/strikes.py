"""What faults did to the requests of the story: when they struck, how late, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.names import some_of
from faults.story.subject import Subject
from faults.struck import fault_names
from faults.wording import short_time
from sim.kernel.log import Record
from sim.oracles.words import seconds
from sim.request_ids import leg_of


@dataclass
class _Strike:
    """A fault that is armed from here on. ``hit`` is the first hit of the story's requests, or of
    nobody's, and which of all hits of the fault that is."""

    armed: Moment
    requests: list[str]
    hit: tuple[Moment, int, list[str]] | None = None
    node: str | None = None
    """The engine that the hit was on, if it was on one."""
    missed: Moment | None = None
    healed: Moment | None = None
    restarted: Moment | None = None


@dataclass
class _Fault:
    kind: str
    strikes: list[_Strike] = field(default_factory=list)
    hits: int = 0


class Strikes(Chapter):
    """The first hit of each strike; of a fault that never hits anything one line. Faults that
    reach other requests only are left out."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._faults: dict[int, _Fault] = {}
        self._crashes: dict[str, _Strike] = {}
        self.kinds = {
            "fault-struck": self._struck,
            "fault-hit": self._hit,
            "fault-missed": self._missed,
            "fault-healed": self._healed,
            "engine-died": self._died,
            "engine-started": self._restarted,
        }

    def moments(self) -> list[Moment]:
        names = fault_names({number: fault.kind for number, fault in self._faults.items()})
        return [
            moment
            for number, fault in self._faults.items()
            for moment in _told(f"fault {names[number]}", fault)
        ]

    def _struck(self, record: Record) -> None:
        request = record.fields.get("request")
        strike = _Strike(self.moment(record, "", 3), [request] if request else [])
        fault = self._faults.setdefault(record.fields["fault"], _Fault(record.fields["fault_kind"]))
        fault.strikes.append(strike)

    def _hit(self, record: Record) -> None:
        fault = self._faults.get(record.fields["fault"])
        if fault is None:
            return
        fault.hits += 1
        reached = record.fields["requests"]
        mine = [request for request in reached if self.subject.is_about(request)]
        if fault.strikes[-1].hit is None and (mine or not reached):
            fault.strikes[-1].hit = self.moment(record, "", 4), fault.hits, mine
            fault.strikes[-1].node = record.fields.get("node")

    def _missed(self, record: Record) -> None:
        if fault := self._faults.get(record.fields["fault"]):
            fault.strikes[-1].missed = self.moment(record, str(record.fields["reason"]), 4)

    def _healed(self, record: Record) -> None:
        if fault := self._faults.get(record.fields["fault"]):
            fault.strikes[-1].healed = self.moment(record, "", 4)

    def _died(self, record: Record) -> None:
        """Right after the hit that was its death."""
        last = (fault.strikes[-1] for fault in self._faults.values())
        node = record.fields["node"]
        here = [
            strike
            for strike in last
            if strike.node == node and strike.hit and strike.hit[0].time_ns == record.time_ns
        ]
        if here and record.fields.get("injected"):
            self._crashes[node] = here[-1]

    def _restarted(self, record: Record) -> None:
        node = record.fields["node"]
        if crash := self._crashes.pop(node, None):
            crash.restarted = self.moment(record, f"{node} starts again", 4)


def _told(name: str, fault: _Fault) -> Iterator[Moment]:
    for strike in fault.strikes:
        if strike.missed is not None:
            yield _said(strike.missed, f"{name} could not strike: {strike.missed.text}")
        elif strike.hit is not None:
            yield from _told_of_hit(name, fault, strike)
    in_vain = [strike for strike in fault.strikes if strike.missed is None]
    if in_vain and not fault.hits:
        first = in_vain[0]
        again = f" {len(in_vain)} times from now on" if len(in_vain) > 1 else ""
        text = f"{name} is armed{again}{_for(first.requests)}, and hits nothing"
        if first.healed and not again:
            text += f" before it is healed at {seconds(first.healed.time_ns)}"
        yield _said(first.armed, text)


def _told_of_hit(name: str, fault: _Fault, strike: _Strike) -> Iterator[Moment]:
    assert strike.hit is not None
    hit, number, mine = strike.hit
    where = f" {strike.node}" if strike.node else ""
    text = f"{name} has struck{where}{_for(mine)}"
    if late_ns := hit.time_ns - strike.armed.time_ns:
        yield _said(strike.armed, f"{name} is armed{_for(strike.requests)}")
        text += f", {short_time(late_ns)} after it was armed"
    yield _said(hit, f"{text} (hit {number} of {fault.hits})" if fault.hits > 1 else text)
    healed, restarted = strike.healed, strike.restarted
    if healed and restarted and healed.time_ns == restarted.time_ns:
        yield _said(healed, f"{name} has been healed: {restarted.text}")
        return
    if healed:
        yield _said(healed, f"{name} has been healed")
    if restarted:
        yield restarted


def _said(moment: Moment, text: str) -> Moment:
    return Moment(moment.time_ns, text, moment.weight, moment.place)


def _for(requests: Iterable[str]) -> str:
    legs = [leg_of(request) for request in requests]
    return f", for {some_of(legs)}" if legs else ""
