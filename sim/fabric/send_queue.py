"""How many work requests of a queue pair are outstanding, and who waits for room.

Room is reserved for a chain as a whole before it is posted and given back when a signaled
completion has been reaped. Waiters are served in order; a newcomer may take room that the first
waiter cannot use yet, as with a counter that everybody tries for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from simpy.events import Event

from sim.kernel import Kernel


@dataclass(eq=False, slots=True)
class _Waiter:
    count: int
    event: Event
    granted: bool = False


class SendQueue:
    """``depth`` of at most ``limit`` places are taken."""

    def __init__(self, kernel: Kernel, limit: int) -> None:
        self._kernel = kernel
        self.limit = limit
        self.depth = 0
        self._waiters: deque[_Waiter] = deque()

    def take(self, count: int) -> bool:
        """Reserve ``count`` places now, or none."""
        if self.depth + count > self.limit:
            return False
        self.depth += count
        return True

    def wait_for(self, count: int, timeout_ns: int, what: str) -> bool:
        """Reserve ``count`` places, parking the current task up to ``timeout_ns`` for them."""
        if self.take(count):
            return True
        waiter = _Waiter(count, self._kernel.event())
        self._waiters.append(waiter)
        self._kernel.wait(waiter.event, timeout_ns, what=what)
        if not waiter.granted:
            self._waiters.remove(waiter)
        return waiter.granted

    def give_back(self, count: int) -> None:
        """``count`` places are free again."""
        self.depth -= count
        while self._waiters and self.take(self._waiters[0].count):
            waiter = self._waiters.popleft()
            waiter.granted = True
            waiter.event.succeed()
