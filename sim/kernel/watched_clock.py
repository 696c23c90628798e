"""Until when code that read the clock would have decided the same.

A time that a watched clock shows is a float that knows how it changes with the clock. Sums,
differences and multiples of it know that too, and every comparison tells when its answer would
turn. What is done with it beyond that, and keeping it, leaves the question open.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from sim.units import SECOND

_MARGIN_NS = 2_000  # wall-clock seconds are floats of that fineness
_OWN_REFERENCES = 3  # the list's, the loop's and that of the call which counts them


class ClockWatch:
    """What was done with the times that clocks showed from ``now_ns`` on."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.open = True
        self.opaque = False
        self._turns_in_s = math.inf
        self._times: list[WatchedTime] = []

    def time(self, seconds: float, rate: float = 1.0) -> WatchedTime:
        """``seconds`` as a value that grows by ``rate`` a second."""
        time = WatchedTime(seconds, self, rate)
        self._times.append(time)
        return time

    def compared(self, difference: float, rate: float) -> None:
        """A value was compared with another that it exceeds by ``difference``."""
        if rate and (left := -difference / rate) >= 0:
            self._turns_in_s = min(self._turns_in_s, left)

    def close(self) -> float | None:
        """When the first comparison turns, in ns and not too late; infinity if none ever does, and
        None if that cannot be told."""
        self.open = False
        kept = False
        for time in self._times:
            kept = kept or sys.getrefcount(time) > _OWN_REFERENCES
        self._times.clear()
        if kept or self.opaque:
            return None
        return self.now_ns + self._turns_in_s * SECOND - _MARGIN_NS


def plain_time(value: float) -> float:
    """``value`` as an ordinary float, of which nobody is told what is done with it."""
    return float.__add__(value, 0.0) if isinstance(value, float) else value


class WatchedTime(float):
    """A time while its watch is open, and an ordinary float from then on."""

    __slots__ = ("rate", "watch")

    watch: ClockWatch
    rate: float

    def __new__(cls, seconds: float, watch: ClockWatch, rate: float) -> WatchedTime:
        self = super().__new__(cls, seconds)
        self.watch = watch
        self.rate = rate
        return self

    def _linear(self, value: float, rate: float) -> float:
        return self.watch.time(value, rate) if rate and self.watch.open else value

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self._linear(float.__add__(self, plain_time(other)), self.rate + _rate(other))

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self._linear(float.__neg__(self), -self.rate)

    def __sub__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self._linear(float.__sub__(self, plain_time(other)), self.rate - _rate(other))

    def __rsub__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self._linear(float.__rsub__(self, plain_time(other)), _rate(other) - self.rate)

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if _rate(other):
            self.watch.opaque = True
        return self._linear(float.__mul__(self, plain_time(other)), self.rate * plain_time(other))

    __rmul__ = __mul__


def _rate(value: Any) -> float:
    return value.rate if isinstance(value, WatchedTime) and value.watch.open else 0.0


def _comparing(name: str) -> Callable[[WatchedTime, Any], Any]:
    compare = getattr(float, name)

    def method(self: WatchedTime, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        number = plain_time(other)
        if self.watch.open:
            difference = float.__sub__(self, number)
            self.watch.compared(difference, self.rate - _rate(other))
        return compare(self, number)

    return method


def _opaque(name: str) -> Callable[..., Any]:
    ordinary = getattr(float, name)

    def method(self: WatchedTime, *args: Any) -> Any:
        self.watch.opaque = True
        return ordinary(self, *args)

    return method


for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(WatchedTime, _name, _comparing(_name))
for _name in (
    "__abs__", "__bool__", "__ceil__", "__divmod__", "__float__", "__floor__", "__floordiv__",
    "__format__", "__getnewargs__", "__hash__", "__int__", "__mod__", "__pow__", "__rdivmod__",
    "__reduce_ex__", "__repr__", "__rfloordiv__", "__rmod__", "__round__", "__rpow__",
    "__rtruediv__", "__str__", "__truediv__", "__trunc__", "as_integer_ratio", "is_integer",
):  # fmt: skip
    setattr(WatchedTime, _name, _opaque(_name))
