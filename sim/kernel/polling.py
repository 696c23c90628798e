"""Loops that look again and again, and the stretches of time in which they find nothing.

vLLM's engine loop looks once a millisecond whether there is news while a request waits for
something remote. A look runs the scheduler and the connector, and nearly always changes nothing.
Looks are passed over while it is certain that they would be like the last ones: nothing happened
anywhere since then, nothing is due, and what the last look compared with the clock would compare
the same. A look that passed its judgement is assumed to depend on nothing else, such as how many
looks there have been.

With ``Kernel.skips_looks`` off, the same looks take place, outside the hash: a run has the same
history, or the assumption was wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from simpy.events import NORMAL, Event

from sim.kernel.watched_clock import ClockWatch

if TYPE_CHECKING:
    from sim.kernel.kernel import Kernel
    from sim.kernel.task import Task

_EMPTY_LOOKS = 2  # vLLM's queue of batches has the results of one look in the next one's hands
_PRIORITY = NORMAL + 1  # among what happens in the same instant


class PollingLoop:
    """One loop: the task that sleeps between two looks, and all that work in a look.

    ``on_skipped(count, period_ns)`` is told of looks that are passed over, before they would be.
    """

    def __init__(self, kernel: Kernel, on_skipped: Callable[[int, int], None]) -> None:
        self._kernel = kernel
        self._on_skipped = on_skipped
        self._priority = _PRIORITY + len(kernel.polling_loops)
        kernel.polling_loops.append(self)
        self._sleeps = False
        self._next_look: Event | None = None
        self._began_ns = 0
        self._period_ns = 0
        self._activity = -1
        self._empty_looks: float = 0
        self._quiet_until_ns: float | None = None
        self._skipped_until_ns = 0
        self.watch: ClockWatch | None = None
        """Of the clocks, in this look."""

    def join(self, task: Task) -> None:
        """``task`` works in the looks of this loop."""
        task.polling_loop = self

    def will_sleep(self) -> None:
        """The next sleep of a task of the loop ends the look."""
        self._sleeps = True

    def looks(self) -> None:
        """It does not sleep now."""
        self._sleeps = False

    def takes_sleep(self) -> bool:
        """Whether the sleep that begins now is the one between two looks."""
        sleeps, self._sleeps = self._sleeps, False
        return sleeps

    def sleep(self, task: Task, duration_ns: int) -> Event:
        """The event of the next look."""
        if self._kernel.env.unobserved:
            return self._schedule(task, duration_ns)
        timeout = self._kernel.env.timeout(duration_ns)
        return self._expect(timeout, task)

    def is_quiet(self) -> bool:
        """Whether the next look will find nothing, if nothing happens before."""
        return self._quiet_until_ns is not None and self._activity == self._kernel.env.activity

    # -------------------------------------------------------------- a look

    def _schedule(self, task: Task, delay_ns: int) -> Event:
        """Behind everything else in its instant, whenever that was scheduled."""
        event = Event(self._kernel.env)
        event._ok, event._value = True, None
        self._kernel.env.schedule_in_order(event, self._priority, delay_ns)
        return self._expect(event, task)

    def _expect(self, event: Event, task: Task) -> Event:
        event.loop, event.unobserved = self, False  # type: ignore[attr-defined]
        assert event.callbacks is not None
        event.callbacks.append(lambda _event: self._due(task))
        self._next_look = event
        return event

    def _due(self, task: Task) -> None:
        self._next_look = None
        kernel = self._kernel
        if task.killed or task.finished:
            return
        if not task.process.may_run(task):
            kernel.env.activity += 1
        self._judge(kernel.now_ns)
        if kernel.now_ns >= self._skipped_until_ns and (count := self._to_skip(kernel.now_ns)):
            self._skipped_until_ns = kernel.now_ns + count * self._period_ns
            if kernel.skips_looks:
                self._skip(task, count)
                return
        kernel.env.unobserved = kernel.now_ns < self._skipped_until_ns
        kernel._wake(task)

    def _judge(self, now_ns: int) -> None:
        """Whether the look that has ended was empty, and what that says of the next one."""
        period_ns = now_ns - self._began_ns
        empty = self._activity == self._kernel.env.activity and period_ns == self._period_ns
        self._activity = self._kernel.env.activity
        self._began_ns, self._period_ns = now_ns, period_ns
        watch, self.watch = self.watch, None
        if not empty:
            self._empty_looks, self._quiet_until_ns = 0, None
            if watch is not None:
                watch.close()
            return
        self._empty_looks += 1
        if watch is not None:
            until_ns = watch.close()
            self._quiet_until_ns = until_ns
            self._empty_looks = _EMPTY_LOOKS if until_ns is not None else -math.inf
        elif self._quiet_until_ns is not None and now_ns >= self._quiet_until_ns:
            self._quiet_until_ns = None
        if self._quiet_until_ns is None and self._empty_looks >= _EMPTY_LOOKS:
            self.watch = ClockWatch(now_ns)

    # ------------------------------------------------------- passing over

    def _to_skip(self, now_ns: int) -> int:
        """How many looks from this one on, each of which would be over before anything happens."""
        if not self.is_quiet():
            return 0
        quiet_until_ns = min(
            loop._quiet_until_ns or math.inf
            for loop in self._kernel.polling_loops
            if (loop._next_look is not None and loop.is_quiet()) or loop is self
        )
        horizon_ns = min(self._kernel.next_happening_ns(), quiet_until_ns)
        if horizon_ns == math.inf:
            return 0
        return max(0, math.floor(horizon_ns - 1 - now_ns) // self._period_ns)

    def _skip(self, task: Task, count: int) -> None:
        self._schedule(task, count * self._period_ns)
        self._began_ns = self._skipped_until_ns - self._period_ns
        self._on_skipped(count, self._period_ns)

    def is_empty_look(self, event: Event) -> bool:
        """Whether ``event`` is the loop's next look, which will find nothing by itself."""
        return event is self._next_look and self.is_quiet()
