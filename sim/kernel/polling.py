"""Loops that look again and again, and the stretches of time in which they find nothing.

vLLM's engine loop looks once a millisecond whether there is news while a request waits for
something remote. A look runs the scheduler and the connector, and nearly always changes nothing.
Looks are passed over while it is certain that they would be like the last ones: nothing happened
anywhere since then, nothing is due, and what the last look compared with the clock would compare
the same. A look that passed its judgement is assumed to depend on nothing else, such as how many
looks there have been.

A thread of guest code that waits again and again with a time-out is such a loop, too. It shares
memory with other loops, so a look that may differ from the one before it is news for them, as what
they make of it is for it, up to ``environment.HOPS`` times.

Looks that are due while others work, and that nobody has brought anything to find, are known as a
whole (sim/kernel/known_look.py): they are recorded and do not take place.

With ``Kernel.skips_looks`` off, the same looks take place, outside the hash: a run has the same
history, or the assumption was wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from simpy.events import NORMAL, Event

from sim.kernel.environment import HOPS
from sim.kernel.known_look import KnownLook
from sim.kernel.watched_clock import ClockWatch

if TYPE_CHECKING:
    from sim.kernel.kernel import Kernel, Wait
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
        self.will_sleep_next = False
        self._next_look: Event | None = None
        self._began_ns = 0
        self._period_ns = 0
        self._activity = -1
        self._passed_on = kernel.env.passed_on
        self._empty_looks: float = 0
        self._quiet_until_ns: float | None = None
        self._skipped_until_ns = 0
        self.watch: ClockWatch | None = None
        """Of the clocks, in this look."""
        self._known = KnownLook(kernel)

    def join(self, task: Task) -> None:
        """``task`` works in the looks of this loop."""
        task.polling_loop = self
        self._known.join(task)

    def will_sleep(self) -> None:
        """The next sleep of a task of the loop ends the look."""
        self.will_sleep_next = True

    def looks(self) -> None:
        """It does not sleep now."""
        self.will_sleep_next = False

    def takes_sleep(self) -> bool:
        """Whether the sleep that begins now is the one between two looks."""
        sleeps, self.will_sleep_next = self.will_sleep_next, False
        return sleeps

    def sleep(self, wait: Wait, duration_ns: int, *, alone: bool) -> Event:
        """The event of the next look, unless ``wait`` ends before, which is not if ``alone``."""
        if self._kernel.env.unobserved:
            return self._schedule(wait, duration_ns)
        timeout = self._kernel.env.timeout(duration_ns)
        self._known.ends(duration_ns if alone else None)
        return self._expect(timeout, wait)

    def is_quiet(self) -> bool:
        """Whether the next look will find nothing, if nothing happens before."""
        return self._quiet_until_ns is not None and self._activity == self._kernel.env.activity

    # -------------------------------------------------------------- a look

    def _schedule(self, wait: Wait, delay_ns: int) -> Event:
        """Behind everything else in its instant, whenever that was scheduled."""
        event = Event(self._kernel.env)
        event._ok, event._value = True, None
        self._kernel.env.schedule_in_order(event, self._priority, delay_ns)
        return self._expect(event, wait)

    def _expect(self, event: Event, wait: Wait) -> Event:
        event.loop, event.unobserved = self, False  # type: ignore[attr-defined]
        assert event.callbacks is not None
        event.callbacks.append(wait.on_look)
        self._next_look = event
        return event

    def due(self, wait: Wait) -> None:
        """The time of a look has come, which is passed over, or ends ``wait``."""
        self._next_look = None
        kernel, task = self._kernel, wait.task
        if task.killed or task.finished:
            return
        if not task.process.may_run(task):
            kernel.env.activity += 1
        news = self._judge(kernel.now_ns)
        if kernel.now_ns >= self._skipped_until_ns and (count := self._to_skip(kernel.now_ns)):
            self._skipped_until_ns = kernel.now_ns + count * self._period_ns
            if kernel.skips_looks:
                self._skip(wait, count)
                return
        kernel.env.unobserved = kernel.now_ns < self._skipped_until_ns
        if news is not None and kernel.has_polling_threads:
            self._pass_on(news)
        if self._known.is_due(kernel.now_ns):
            self._repeat(wait)
            return
        self._known.begins()
        wait.over = True
        kernel._wake(task)

    def _repeat(self, wait: Wait) -> None:
        """Let happen what the look would have done, which is known."""
        kernel = self._kernel
        kernel.log.switched(kernel.now_ns, wait.task.number)
        self._on_skipped(1, self._period_ns)
        if self.watch is not None:
            self.watch = self._known.watch_at(kernel.now_ns)
        self._expect(kernel.env.timeout(self._known.sleep_ns), wait)

    def _judge(self, now_ns: int) -> int | None:
        """Whether the look that has ended was empty, and what that says of the next one.

        None if the next one will be like it; otherwise by how many loops' looks this has come from
        something that happened.
        """
        period_ns = now_ns - self._began_ns
        hops = self._kernel.env.hops_since(self._activity, self._passed_on)
        empty = hops is None and period_ns == self._period_ns
        self._saw()
        self._began_ns, self._period_ns = now_ns, period_ns
        if not empty:
            self._empty_looks, self._quiet_until_ns = 0, None
            if self.watch is not None:
                self.watch.close()
                self.watch = None
            return hops or 0
        self._empty_looks += 1
        turned = self._ask_the_watch(now_ns)
        if self._quiet_until_ns is None and self._empty_looks >= _EMPTY_LOOKS:
            self.watch = ClockWatch(now_ns)
        return 0 if turned else None

    def _ask_the_watch(self, now_ns: int) -> bool:
        """Whether the next look may compare otherwise than those before."""
        watch, self.watch = self.watch, None
        if watch is not None:
            self._quiet_until_ns = watch.close()
            self._empty_looks = _EMPTY_LOOKS if self._quiet_until_ns is not None else -math.inf
            if self._quiet_until_ns is not None:
                self._known.learn(watch, self._quiet_until_ns)
        elif self._quiet_until_ns is not None and now_ns >= self._quiet_until_ns:
            self._quiet_until_ns = None
            return True
        return False

    def _pass_on(self, hops: int) -> None:
        if hops < HOPS:
            self._kernel.env.pass_on(hops + 1)
            self._saw()

    def _saw(self) -> None:
        env = self._kernel.env
        self._activity, self._passed_on = env.activity, env.passed_on

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
        if quiet_until_ns <= (soon_ns := now_ns + self._period_ns):
            return 0
        horizon_ns = min(self._kernel.next_happening_ns(soon_ns), quiet_until_ns)
        if horizon_ns == math.inf:
            return 0
        return max(0, math.floor(horizon_ns - 1 - now_ns) // self._period_ns)

    def _skip(self, wait: Wait, count: int) -> None:
        self._schedule(wait, count * self._period_ns)
        self._began_ns = self._skipped_until_ns - self._period_ns
        self._on_skipped(count, self._period_ns)

    def is_empty_look(self, event: Event) -> bool:
        """Whether ``event`` is the loop's next look, which will find nothing by itself."""
        return event is self._next_look and self.is_quiet()
