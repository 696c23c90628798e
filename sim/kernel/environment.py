"""SimPy's event queue with integer nanoseconds and, on request, seeded tie-breaking.

Events of the same instant normally run in the order in which they were scheduled. With a
``tie_breaker`` that order is drawn from the seed instead, so that nothing can come to rely on
it. Whatever must stay in order (one socket, queue pair, stream or task) keeps its own queue:
its events only say "take the next one", and so are interchangeable.
"""

from __future__ import annotations

import random
from heapq import heappush
from typing import TYPE_CHECKING, Any

import simpy
from simpy.events import NORMAL, Event

if TYPE_CHECKING:
    from sim.kernel.polling import PollingLoop
    from sim.kernel.process import Process

_SEQUENCE_BITS = 48
HOPS = 2
"""From loop to loop, through memory that they share, for which news is passed on."""


class Environment(simpy.Environment):
    """Time is an int (ns); a float delay is a defect of the caller and is refused."""

    _now: Any
    _queue: list[Any]

    def __init__(self, tie_breaker: random.Random | None = None) -> None:
        super().__init__(initial_time=0)
        self._tie_breaker = tie_breaker
        self.loop: PollingLoop | None = None
        """In whose look the running event is, or what followed from that."""
        self.unobserved = False
        """Whether that look would have been passed over."""
        self.activity = 0
        """Grows with everything that may change what a look finds."""
        self.calls_out = 0
        """Of facades, by which a process may change what others see without an event."""
        self.within = 0
        """How much of ``activity`` nobody noticed outside the process that it was in."""
        self.scheduled = 0
        """Events, so far."""
        self.passed_on = (0,) * HOPS
        """How much of that were looks, by the number of loops it had come through."""

    def schedule(self, event: Any, priority: Any = NORMAL, delay: Any = 0) -> None:
        if delay.__class__ is not int:
            raise TypeError(f"delay must be an int of nanoseconds, got {delay!r}")
        event.loop, event.unobserved = self.loop, self.unobserved
        order = self.scheduled = self.scheduled + 1
        if self._tie_breaker is not None and not self.unobserved:
            order |= self._tie_breaker.getrandbits(16) << _SEQUENCE_BITS
        heappush(self._queue, (self._now + delay, priority, order, event))

    def schedule_in_order(self, event: Event, priority: int, delay_ns: int) -> None:
        """As ``schedule``; nothing is drawn."""
        self.scheduled += 1
        heappush(self._queue, (self._now + delay_ns, priority, self.scheduled, event))

    def pass_on(self, hops: int) -> None:
        """A look may have changed what others find."""
        self.activity += 1
        self.passed_on = tuple(n + (h == hops) for h, n in enumerate(self.passed_on, start=1))

    def hops_since(self, activity: int, passed_on: tuple[int, ...]) -> int | None:
        """Through how few loops news has come since then; None if there is none."""
        if passed_on is self.passed_on:  # as it mostly is
            return None if activity == self.activity else 0
        grown = [new - old for new, old in zip(self.passed_on, passed_on, strict=True)]
        if self.activity - activity > sum(grown):
            return 0
        return next((hops for hops, n in enumerate(grown, start=1) if n), None)

    def stays_within(self, process: Process) -> None:
        """The last activity was inside ``process``, and nobody outside noticed."""
        self.within += 1
        process.within += 1

    def reached(self, process: Process) -> int:
        """Grows with everything that ``process`` may have noticed."""
        return self.activity - self.within + self.calls_out + process.within

    def step(self) -> None:
        event = self._queue[0][-1]
        self.loop, self.unobserved = event.loop, event.unobserved
        super().step()

    def next_time_ns(self) -> int | None:
        """When the next event is due, or None when nothing is scheduled."""
        return self._queue[0][0] if self._queue else None
