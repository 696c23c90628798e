"""Event, Semaphore, BoundedSemaphore and Barrier of ``threading``.

Semaphores are fair in the way locks are: a release goes to the thread that has waited longest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sim.guest.facades.locks import Primitive
from sim.guest.facades.waiting import WaitQueue, enter


class Event(Primitive):
    """A flag to wait for; ``set`` wakes everybody who waits at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self._flag = False
        self._waiting = WaitQueue(self._kernel)

    def is_set(self) -> bool:
        self._kernel.checkpoint(within=True)
        return self._flag

    isSet = is_set

    def set(self) -> None:
        self._kernel.checkpoint(within=True)
        self._flag = True
        if not self._kernel.closing:
            self._waiting.wake_all()

    def clear(self) -> None:
        self._kernel.checkpoint(within=True)
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        enter(self._kernel, within=True)
        return self._flag or self._waiting.wait(timeout, lambda: f"set() of {self}")


class Semaphore(Primitive):
    """A counter that ``acquire`` lowers, waiting while it is zero."""

    def __init__(self, value: int = 1) -> None:
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        super().__init__()
        self._value = value
        self._waiting = WaitQueue(self._kernel)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        enter(self._kernel, within=True)
        if self._value > 0:
            self._value -= 1
            return True
        return blocking and self._waiting.wait(timeout, lambda: f"release() of {self}")

    __enter__ = acquire

    def __exit__(self, *_exception: Any) -> None:
        self.release()

    def release(self, n: int = 1) -> None:
        if n < 1:
            raise ValueError("n must be one or more")
        self._kernel.checkpoint(within=True)
        if self._kernel.closing:
            return
        self._check_release(n)
        for _ in range(n):
            if self._waiting.wake_first() is None:
                self._value += 1

    def _check_release(self, n: int) -> None:
        """A plain semaphore may be released without limit."""


class BoundedSemaphore(Semaphore):
    """A semaphore whose counter never exceeds its first value."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)
        self._initial_value = value

    def _check_release(self, n: int) -> None:
        if self._value + n > self._initial_value:
            raise ValueError("Semaphore released too many times")


class _Round:
    """The threads that one opening of a barrier will let through together."""

    def __init__(self, waiting: WaitQueue) -> None:
        self.arrived = 0
        self.failed = False
        self.waiting = waiting


class Barrier(Primitive):
    """``parties`` threads wait for each other, again and again."""

    def __init__(
        self, parties: int, action: Callable[[], None] | None = None, timeout: float | None = None
    ) -> None:
        if parties < 1:
            raise ValueError("parties must be > 0")
        super().__init__()
        self.parties = parties
        self.broken = False
        self._action = action
        self._timeout = timeout
        self._round = _Round(WaitQueue(self._kernel))

    @property
    def n_waiting(self) -> int:
        return len(self._round.waiting)

    def wait(self, timeout: float | None = None) -> int:
        enter(self._kernel, within=True)
        if self.broken:
            raise threading.BrokenBarrierError
        this = self._round
        index = this.arrived
        this.arrived += 1
        if this.arrived == self.parties:
            self._open(this)
            return index
        limit = self._timeout if timeout is None else timeout
        if not this.waiting.wait(limit, lambda: f"{self.parties} threads at {self}"):
            self._fail(this, broken=True)
        if this.failed:
            raise threading.BrokenBarrierError
        return index

    def reset(self) -> None:
        self._kernel.checkpoint(within=True)
        self._fail(self._round, broken=False)

    def abort(self) -> None:
        self._kernel.checkpoint(within=True)
        self._fail(self._round, broken=True)

    def _open(self, this: _Round) -> None:
        self._round = _Round(WaitQueue(self._kernel))
        try:
            if self._action is not None:
                self._action()
        except BaseException:
            self._fail(this, broken=True)
            raise
        this.waiting.wake_all()

    def _fail(self, this: _Round, *, broken: bool) -> None:
        self.broken = broken
        if self._kernel.closing:
            return
        for failing in (this, self._round):
            failing.failed = failing.arrived > 0
            failing.waiting.wake_all()
        self._round = _Round(WaitQueue(self._kernel))
