"""What the nemesis did in a run, as sentences, from the event log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from faults.wording import short_time
from sim.kernel.log import Record
from sim.oracles.words import seconds

_SHOWN = 4


def fault_names(kinds: Mapping[int, str]) -> dict[int, str]:
    """What to call each fault of a scenario, by its place: its kind, and the place, counted from 1,
    if there are more of that kind."""
    counts = Counter(kinds.values())
    return {
        number: f"{kind} (no. {number + 1})" if counts[kind] > 1 else kind
        for number, kind in kinds.items()
    }


@dataclass
class _Told:
    name: str
    armed: list[int] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    first_armed_ns: int = 0
    """When it was armed for its first hit."""
    reached: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        return f"{self.name}: {self._what}"

    @property
    def _what(self) -> str:
        if not self.armed:
            return "its moment did not come"
        if self.reasons and not self.hits:
            return f"could not strike, {'; '.join(self.reasons)}"
        if not self.hits:
            return f"was armed {_times(self.armed)}, and struck nothing"
        late_ns = self.hits[0] - self.first_armed_ns
        late = f", {short_time(late_ns)} after it was armed" if late_ns else ""
        return f"hit {_times(self.hits)}{late}; reached {self._whom}"

    @property
    def _whom(self) -> str:
        shown = list(self.reached)[:_SHOWN]
        more = len(self.reached) - len(shown)
        return (", ".join(shown) or "no request") + (f" and {more} more" if more else "")


def _times(times_ns: Sequence[int]) -> str:
    if len(times_ns) == 1:
        return f"once, at {seconds(times_ns[0])}"
    return f"{len(times_ns)} times, first at {seconds(times_ns[0])}"


def fault_sentences(kinds: Iterable[str], records: Iterable[Record]) -> list[str]:
    """One for each fault of a scenario, in their order."""
    told = [_Told(name) for name in fault_names(dict(enumerate(kinds))).values()]
    for record in records:
        if record.kind in _TELLING:
            _note(told[record.fields["fault"]], record)
    return [one.sentence for one in told]


_TELLING = ("fault-struck", "fault-hit", "fault-missed")


def _note(told: _Told, record: Record) -> None:
    if record.kind == "fault-struck":
        told.armed.append(record.time_ns)
    elif record.kind == "fault-missed":
        told.reasons[record.fields["reason"]] = None
    else:
        if not told.hits:
            told.first_armed_ns = told.armed[-1]
        told.hits.append(record.time_ns)
        for request, phases in record.fields["requests"].items():
            told.reached[f"{request} ({', '.join(phases) or 'in no phase'})"] = None
