"""Where the hub, or anybody, leaves things for a task that waits for them."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from simpy.events import Event

from sim.kernel.kernel import Kernel

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """First in, first out; putting never blocks, so hardware and routers may do it."""

    def __init__(self, kernel: Kernel, what: str) -> None:
        self._kernel = kernel
        self._what = what
        self._items: deque[Item] = deque()
        self._arrival: Event | None = None

    def put(self, item: Item) -> None:
        self._items.append(item)
        if self._arrival is not None:
            arrival, self._arrival = self._arrival, None
            arrival.succeed()

    def get(self) -> Item:
        """The oldest item; blocks the calling task until there is one. One task may wait."""
        while not self._items:
            self._arrival = self._kernel.event()
            self._kernel.wait(self._arrival, what=self._what)
        return self._items.popleft()
