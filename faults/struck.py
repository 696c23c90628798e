"""What the nemesis did in a run, as sentences, from the event log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sim.kernel.log import Record

_SHOWN = 4


@dataclass
class _Told:
    kind: str
    strikes: int = 0
    hits: int = 0
    reached: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        if not self.strikes and not self.reasons:
            return f"{self.kind}: its moment did not come"
        if self.reasons and not self.hits:
            return f"{self.kind}: could not strike, {'; '.join(self.reasons)}"
        if not self.hits:
            return f"{self.kind}: was armed, and struck nothing"
        if not self.reached:
            return f"{self.kind}: struck, and reached no request"
        shown = list(self.reached)[:_SHOWN]
        more = len(self.reached) - len(shown)
        return f"{self.kind}: reached {', '.join(shown)}" + (f" and {more} more" if more else "")


def fault_sentences(kinds: Iterable[str], records: Iterable[Record]) -> list[str]:
    """One for each fault of a scenario, in their order."""
    told = [_Told(kind) for kind in kinds]
    for record in records:
        if record.kind in _TELLING:
            _note(told[record.fields["fault"]], record)
    return [one.sentence for one in told]


_TELLING = ("fault-struck", "fault-hit", "fault-missed")


def _note(told: _Told, record: Record) -> None:
    if record.kind == "fault-struck":
        told.strikes += 1
    elif record.kind == "fault-missed":
        told.reasons[record.fields["reason"]] = None
    else:
        told.hits += 1
        for request, phases in record.fields["requests"].items():
            told.reached[f"{request} ({', '.join(phases) or 'in no phase'})"] = None
