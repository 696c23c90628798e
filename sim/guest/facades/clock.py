"""``time`` and ``datetime`` on virtual time, in UTC.

Wall clocks show a fixed date plus virtual time plus the offset of the running node; monotonic
clocks show virtual time. Code itself takes no time, except that a thread which does nothing but
read the clock moves it: it is polling, and would otherwise wait for ever.
"""

from __future__ import annotations

import calendar
import datetime as real_datetime
import sys
import time as real_time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sim.errors import TaskKilled
from sim.guest.facades.proxy import Facade, ModuleProxy
from sim.guest.facades.standstill import stands_still
from sim.guest.facades.waiting import enter, timeout_ns
from sim.kernel import Kernel
from sim.units import MS, SECOND, ns_to_seconds

EPOCH_NS = calendar.timegm((2026, 1, 1, 0, 0, 0)) * SECOND
"""What wall clocks show at virtual time zero: 2026-01-01T00:00:00Z."""

_SPIN_READS = 1_000
_SPIN_NS = 1 * MS


def wall_ns(kernel: Kernel) -> int:
    """The wall clock of the running node, in nanoseconds since 1970."""
    task = kernel.current()
    offset_ns = task.process.node.wall_offset_ns if task is not None else 0
    return EPOCH_NS + kernel.now_ns + offset_ns


class _Reader:
    """Reads clocks on behalf of guests, and notices who only does that."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._at_ns = -1
        self._reads = 0

    def _read(self) -> None:
        kernel = self._kernel
        kernel.checkpoint(within=True)
        if kernel.now_ns != self._at_ns:
            self._at_ns = kernel.now_ns
            self._reads = 0
        self._reads += 1
        if self._reads > _SPIN_READS and kernel.current() is not None:
            self._reads = 0
            kernel.sleep(_SPIN_NS)

    def _seconds(self, ns: int) -> float:
        watch = self._kernel.clock_watch
        if watch is None:
            return ns_to_seconds(ns)
        ahead_ns = ns - self._kernel.now_ns
        return watch.time(ns_to_seconds(ns), at=lambda now_ns: ns_to_seconds(now_ns + ahead_ns))

    def _exactly(self, ns: int) -> int:
        if (watch := self._kernel.clock_watch) is not None:
            watch.opaque = True
        return ns

    def monotonic(self) -> float:
        self._read()
        return self._seconds(self._kernel.now_ns)

    def monotonic_ns(self) -> int:
        self._read()
        return self._exactly(self._kernel.now_ns)

    def wall(self) -> float:
        self._read()
        return self._seconds(wall_ns(self._kernel))

    def wall_ns(self) -> int:
        self._read()
        return self._exactly(wall_ns(self._kernel))

    def calendar(self) -> float:
        """The wall clock, for code in C that makes a date of it."""
        return float(self.wall())


def _for_c(seconds: Any) -> Any:
    """A watched time would not be told of what C code makes of it."""
    return float(seconds) if isinstance(seconds, float) else seconds


def make(kernel: Kernel) -> ModuleType:
    """The facade of ``time``."""
    reader = _Reader(kernel)

    def sleep(seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        enter(kernel, within=True)
        if kernel.closing:
            raise TaskKilled
        duration_ns = timeout_ns(seconds)
        task = kernel.require_task("sleep")
        if not task.ends_look and stands_still(task, sys._getframe(1), duration_ns):
            kernel.will_poll()
        kernel.sleep(duration_ns, within=True)

    members: dict[str, Any] = {"time": reader.wall, "time_ns": reader.wall_ns, "sleep": sleep}
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        members[name] = reader.monotonic
        members[f"{name}_ns"] = reader.monotonic_ns
    return Facade(kernel, "time", members | _calendar(reader.calendar))


def _calendar(wall: Callable[[], float]) -> dict[str, Any]:
    def gmtime(seconds: float | None = None) -> real_time.struct_time:
        return real_time.gmtime(wall() if seconds is None else _for_c(seconds))

    def asctime(moment: Any = None) -> str:
        return real_time.asctime(gmtime() if moment is None else moment)

    def strftime(format: str, moment: Any = None) -> str:
        return real_time.strftime(format, gmtime() if moment is None else moment)

    return {
        "gmtime": gmtime,
        "localtime": gmtime,
        "asctime": asctime,
        "ctime": lambda seconds=None: real_time.asctime(gmtime(seconds)),
        "strftime": strftime,
        "strptime": real_time.strptime,
        "mktime": lambda moment: float(calendar.timegm(moment)),
        "struct_time": real_time.struct_time,
        "timezone": 0,
        "altzone": 0,
        "daylight": 0,
        "tzname": ("UTC", "UTC"),
    }


def make_datetime(kernel: Kernel) -> ModuleType:
    """The facade of ``datetime``: its classes, with a virtual "now"; local time is UTC."""
    reader = _Reader(kernel)
    utc = real_datetime.UTC

    class AsReal(type):
        """Values made by the real classes are instances of the facade's, too."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, cls.__mro__[1])

    class date(real_datetime.date, metaclass=AsReal):
        @classmethod
        def fromtimestamp(cls, timestamp: float, /) -> Any:
            moment = real_datetime.datetime.fromtimestamp(_for_c(timestamp), utc)
            return cls(moment.year, moment.month, moment.day)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(reader.wall())

    class datetime(real_datetime.datetime, metaclass=AsReal):
        @classmethod
        def fromtimestamp(cls, timestamp: float, tz: Any = None) -> Any:
            moment = super().fromtimestamp(_for_c(timestamp), utc if tz is None else tz)
            return moment if tz is not None else moment.replace(tzinfo=None)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(reader.wall(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now()

        @classmethod
        def today(cls) -> Any:
            return cls.now()

        def timestamp(self) -> float:
            aware = self if self.tzinfo is not None else self.replace(tzinfo=utc)
            return real_datetime.datetime.timestamp(aware)

    class timedelta(real_datetime.timedelta, metaclass=AsReal):
        def __new__(cls, *parts: Any, **named: Any) -> Any:
            named = {name: _for_c(part) for name, part in named.items()}
            return real_datetime.timedelta(*map(_for_c, parts), **named)

    members = {"date": date, "datetime": datetime, "timedelta": timedelta}
    return ModuleProxy(real_datetime, members, "datetime")
