"""The first-come-first-served queue of waiting threads under every lock, event and join.

Whoever wakes a thread also decides then and there that it was woken: its event only makes it
run, so neither a time-out of the same instant nor a pause can lose or double a wake-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from simpy.events import Event

from sim.errors import TaskKilled
from sim.kernel import Kernel, Task
from sim.units import seconds_to_ns


def enter(kernel: Kernel, *, within: bool = False) -> None:
    """On entry to a call that may block: a preemption point, and the end of a killed thread.

    Garbage that is collected after the run (no task) may still take free locks. ``within`` as for
    ``Kernel.checkpoint``.
    """
    kernel.checkpoint(within=within)
    if kernel.closing and kernel.current() is not None:
        raise TaskKilled


def timeout_ns(seconds: float) -> int:
    """Nearest nanosecond, but never none of a positive time.

    Code that waits for ``deadline - now`` until nothing remains would otherwise spin for ever on
    a remainder that is only a rounding error.
    """
    return max(1, seconds_to_ns(seconds)) if seconds > 0 else 0


class Waiter:
    """One waiting thread."""

    __slots__ = ("event", "task", "woken")

    def __init__(self, event: Event, task: Task | None) -> None:
        self.event = event
        self.task = task
        self.woken = False


class WaitQueue:
    """Waiting threads in order of arrival."""

    __slots__ = ("_kernel", "_waiters")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._waiters: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._waiters)

    def arrive(self) -> Waiter:
        """Take a place in the queue without parking yet."""
        if self._kernel.closing:
            raise TaskKilled
        waiter = Waiter(self._kernel.event(), self._kernel.current())
        self._waiters.append(waiter)
        return waiter

    def park(self, waiter: Waiter, timeout: float | None, what: Callable[[], str]) -> bool:
        """Wait until woken, at most ``timeout`` seconds; False means not woken."""
        if self._kernel.closing:
            raise TaskKilled
        if timeout is None or timeout > 0:
            self._kernel.wait(
                waiter.event,
                None if timeout is None else timeout_ns(timeout),
                what=lambda: f"{what()} {_called_api(waiter.task)}",
            )
        if not waiter.woken:
            self._waiters.remove(waiter)
        return waiter.woken

    def wait(self, timeout: float | None, what: Callable[[], str]) -> bool:
        return self.park(self.arrive(), timeout, what)

    def wake_first(self) -> Waiter | None:
        """Wake the thread that has waited longest, if any."""
        if not self._waiters:
            return None
        waiter = self._waiters.popleft()
        waiter.woken = True
        waiter.event.succeed()
        return waiter

    def wake_all(self) -> None:
        while self.wake_first() is not None:
            pass


def _called_api(task: Task | None) -> str:
    """``(in Queue.get)``: what the guest called, outermost of the facades' frames."""
    frame = task.gr_frame if task is not None else None
    called = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("sim.guest.facades."):
            called = frame.f_code.co_qualname
        elif not module.startswith("sim.kernel."):
            break
        frame = frame.f_back
    return f"(in {called})"
