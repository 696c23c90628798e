"""Axes: of times with long pauses between them, and of quantities, plain or by their decades."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log10

from faults.wording import short_time
from sim.units import US


class TimeAxis:
    """Times to pixels. A pause counts by its order of magnitude: runs have milliseconds in which
    everything happens, and minutes in which nothing does."""

    def __init__(self, times_ns: Iterable[int], start: float, length: float) -> None:
        self._times = sorted(set(times_ns)) or [0]
        pauses = [log10(10 + (b - a) / US) for a, b in pairwise(self._times)]
        scale = length / (sum(pauses) or 1.0)
        self._places = [start]
        for pause in pauses:
            self._places.append(self._places[-1] + pause * scale)

    def at(self, time_ns: int) -> float:
        """Where a time is; outside of those that were given, at the nearest end."""
        after = bisect_right(self._times, time_ns)
        if after == 0 or after == len(self._times):
            return self._places[max(after - 1, 0)]
        (t0, t1), (x0, x1) = (
            (values[after - 1], values[after]) for values in (self._times, self._places)
        )
        return x0 + (x1 - x0) * (time_ns - t0) / (t1 - t0)

    def ticks(self, apart: float) -> list[tuple[float, str]]:
        """Places and times to write there, at least ``apart`` pixels from each other."""
        chosen: list[tuple[float, str]] = []
        for place, time_ns in zip(self._places, self._times, strict=True):
            if not chosen or place - chosen[-1][0] >= apart:
                chosen.append((place, short_time(time_ns)))
        return chosen


class LogAxis:
    """Positive quantities to pixels, a decade at a time; from the decade below the smallest to the
    one above the largest."""

    def __init__(self, values: Sequence[float], start: float, length: float) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self.low = _floor(log10(min(positive)))
        self.high = max(-_floor(-log10(max(positive))), self.low + 1)
        self._start, self._length = start, length

    def at(self, value: float) -> float:
        """Where a value is; what is not positive is at the beginning."""
        share = (log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return self._start + self._length * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Each decade, as a number."""
        decades = range(self.low, self.high + 1)
        return [(self.at(10.0**decade), f"{10.0**decade:g}") for decade in decades]


class LinearAxis:
    """Quantities from 0 to ``high`` to pixels."""

    def __init__(self, high: float, start: float, length: float) -> None:
        self._high = high or 1.0
        self._start, self._length = start, length

    def at(self, value: float) -> float:
        """Where a value is."""
        return self._start + self._length * value / self._high

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers, at most eleven."""
        decade = 10.0 ** _floor(log10(self._high))
        step = next(decade * s for s in (0.1, 0.2, 0.5, 1) if self._high <= 10 * decade * s)
        count = int(self._high / step + 1e-9)
        return [(self.at(step * i), f"{step * i:.4g}") for i in range(count + 1)]


def _floor(value: float) -> int:
    return int(value // 1)
