"""Looks whose whole course is known beforehand, so that they need not take place to be recorded.

Looks are passed over while nothing happens anywhere (sim/kernel/polling.py). When a thread of one
process has worked without anything being seen of it outside, the looks of loops in other processes
are due once more, and each will do what the last one did: it switches to its task, which goes to
sleep for as long as before, and compares with the clock what it compared then. That is recorded
and scheduled without running any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel.watched_clock import FINENESS_NS, ClockWatch

if TYPE_CHECKING:
    from sim.kernel.kernel import Kernel
    from sim.kernel.task import Task


class KnownLook:
    """What the next look of one loop does, if that is known."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._tasks: list[Task] = []
        self._first = (0, 0, 0)
        self._is_one_turn = False
        self._watch: ClockWatch | None = None
        self._until_ns = 0.0
        self._reached = self._reached_then = -1
        self.sleep_ns = 0
        """How long the sleep behind a look is."""

    def join(self, task: Task) -> None:
        """``task`` works in the looks."""
        self._tasks.append(task)

    def begins(self) -> None:
        """A look takes place."""
        self._first = self._count(1)

    def ends(self, sleep_ns: int | None) -> None:
        """It has, and the sleep behind it is scheduled; None if something else may end that."""
        self._is_one_turn = False
        if sleep_ns is not None and len(self._tasks) == 1:
            self._is_one_turn = self._count(0) == self._first
            self._reached_then = self._reached_now()
            self.sleep_ns = sleep_ns

    def _count(self, more: int) -> tuple[int, int, int]:
        """Of events scheduled and switches to tasks, and of calls that others may notice."""
        env, log = self._kernel.env, self._kernel.log
        return env.scheduled + more, log.switches + more, env.calls_out

    def _reached_now(self) -> int:
        return self._kernel.env.reached(self._tasks[0].process)

    def learn(self, watch: ClockWatch, until_ns: float) -> None:
        """The last look was empty, and would compare as ``watch`` has seen until ``until_ns``."""
        kernel = self._kernel
        learns = kernel.skips_looks and not kernel.perturb and watch.repeats
        if learns and self._is_one_turn:
            self._watch, self._until_ns = watch, until_ns
            self._reached = self._reached_then

    def is_due(self, now_ns: int) -> bool:
        """Whether the look that is due now is known."""
        return (
            self._watch is not None
            and self._reached_now() == self._reached
            and now_ns < self._until_ns - FINENESS_NS
        )

    def watch_at(self, now_ns: int) -> ClockWatch:
        """What a watch of the look at ``now_ns`` would have seen."""
        assert self._watch is not None
        return self._watch.again(now_ns)
