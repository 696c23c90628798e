"""A line of a story, and which lines a story that is too long can do without."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from faults.wording import for_people

MAX_MOMENTS = 16


@dataclass(frozen=True)
class Moment:
    """One line of the story. The lowest ``weight`` is left out first when there are too many."""

    time_ns: int
    text: str
    weight: int
    place: int = field(default=sys.maxsize, compare=False)
    """In the event log, whose order is that of causes; what has none comes last in its instant."""


def shortened(moments: list[Moment]) -> list[Moment]:
    """At most MAX_MOMENTS of them in order of time, without what says least."""
    kept = sorted(dict.fromkeys(moments), key=_order)
    while len(kept) > MAX_MOMENTS:
        # Of equal weight the middle is what the story can best do without.
        least = min(moment.weight for moment in kept)
        candidates = [i for i, moment in enumerate(kept) if moment.weight == least]
        del kept[candidates[len(candidates) // 2]]
    return kept


def explained(moments: Sequence[Moment]) -> list[Moment]:
    """With a word on what an epilogue is where one is first named."""
    texts = [for_people(moment.text) for moment in moments]
    named = (i for i, moment in enumerate(moments) if texts[i] != moment.text)
    first = next(named, None)
    return [
        replace(moment, text=texts[i]) if i == first else moment for i, moment in enumerate(moments)
    ]


def _order(moment: Moment) -> tuple[int, int]:
    return moment.time_ns, moment.place
