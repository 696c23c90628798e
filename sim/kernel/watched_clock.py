"""Until when code that read the clock would have decided the same.

A time that a watched clock shows is a float that knows how it changes with the clock. Sums,
differences and multiples of it know that too, and every comparison tells when its answer would
turn. What is done with it beyond that, and keeping it, leaves the question open.

It also knows how it came about, so what would have been seen at another time, to the last bit of
the floats, can be told afterwards.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

from sim.units import SECOND

FINENESS_NS = 1_000  # of the floats that wall-clock seconds are, and more
_MARGIN_NS = 2 * FINENESS_NS
_OWN_REFERENCES = 3  # the list's, the loop's and that of the call which counts them

At = Callable[[int], float]
"""What a value would be at another time, in ns."""


class ClockWatch:
    """What was done with the times that clocks showed from ``now_ns`` on."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.open = True
        self.opaque = False
        self.repeats = True
        """Whether ``again`` can tell."""
        self._turns_in_s = math.inf
        self._times: list[WatchedTime] = []
        self._comparisons: list[tuple[At, float]] = []

    def time(self, seconds: float, rate: float = 1.0, at: At | None = None) -> WatchedTime:
        """``seconds`` as a value that grows by ``rate`` a second."""
        if at is None:
            self.repeats, at = False, _unknown
        time = WatchedTime(seconds, self, rate, at)
        self._times.append(time)
        return time

    def compared(self, difference: float, rate: float, at: At) -> None:
        """A value was compared with another that it exceeds by ``difference``."""
        self._comparisons.append((at, rate))
        self._turns_in_s = min(self._turns_in_s, _turns_in_s(difference, rate))

    def again(self, now_ns: int) -> ClockWatch:
        """What a watch would have seen from ``now_ns`` on, with the same done to the times."""
        watch = ClockWatch(now_ns)
        for difference_at, rate in self._comparisons:
            watch.compared(difference_at(now_ns), rate, difference_at)
        return watch

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


def _unknown(_now_ns: int) -> float:
    return math.nan


def _turns_in_s(difference: float, rate: float) -> float:
    """When a value that grows by ``rate`` gets to where it exceeds by nothing."""
    if not rate or (left := -difference / rate) < 0:
        return math.inf
    return left


def plain_time(value: float) -> float:
    """``value`` as an ordinary float, of which nobody is told what is done with it."""
    return float.__add__(value, 0.0) if isinstance(value, float) else value


class WatchedTime(float):
    """A time while its watch is open, and an ordinary float from then on.

    As such it gives way to the operator of the other operand, which may be a time of another watch.
    """

    __slots__ = ("at", "rate", "watch")

    watch: ClockWatch
    rate: float
    at: At

    def __new__(cls, seconds: float, watch: ClockWatch, rate: float, at: At) -> WatchedTime:
        self = super().__new__(cls, seconds)
        self.watch = watch
        self.rate = rate
        self.at = at
        return self

    def _linear(self, compute: Callable[[float, Any], float], other: Any, rate: float) -> float:
        """What ``compute`` makes of this and ``other``, as a value that grows by ``rate``."""
        value = compute(self, plain_time(other))
        if rate:
            return self.watch.time(value, rate, _computed_at(compute, self, other))
        if value:  # the floats of another time may differ by more, or less
            self.watch.repeats = False
        return value

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if not self.watch.open:
            return plain_time(self) + other
        return self._linear(float.__add__, other, self.rate + _rate(other))

    __radd__ = __add__

    def __neg__(self) -> Any:
        if not self.watch.open:
            return -plain_time(self)
        return self._linear(float.__mul__, -1, -self.rate)

    def __sub__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if not self.watch.open:
            return plain_time(self) - other
        return self._linear(float.__sub__, other, self.rate - _rate(other))

    def __rsub__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if not self.watch.open:
            return other - plain_time(self)
        return self._linear(float.__rsub__, other, _rate(other) - self.rate)

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if not self.watch.open:
            return plain_time(self) * other
        if _rate(other):
            self.watch.opaque = True
        return self._linear(float.__mul__, other, self.rate * plain_time(other))

    __rmul__ = __mul__


def _rate(value: Any) -> float:
    return value.rate if isinstance(value, WatchedTime) and value.watch.open else 0.0


def _computed_at(compute: Callable[[float, Any], float], value: WatchedTime, other: Any) -> At:
    """``compute(value, other)`` at another time. It must not hold on to either: a time that
    somebody holds on to counts as kept."""
    value_at = value.at
    if _rate(other):
        other_at = other.at
        return lambda now_ns: compute(value_at(now_ns), other_at(now_ns))
    constant = plain_time(other)
    return lambda now_ns: compute(value_at(now_ns), constant)


def _comparing(name: str) -> Callable[[WatchedTime, Any], Any]:
    compare = getattr(float, name)
    ordinary = getattr(operator, name)

    def method(self: WatchedTime, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if not self.watch.open:
            return ordinary(plain_time(self), other)
        number = plain_time(other)
        difference = float.__sub__(self, number)
        at = _computed_at(float.__sub__, self, other)
        self.watch.compared(difference, self.rate - _rate(other), at)
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
