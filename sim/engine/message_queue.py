"""The shared-memory queues between an engine's core and its rank processes."""

from __future__ import annotations

from collections import deque
from typing import Any

from simpy.events import Event

from sim.guest.pickling import restore, snapshot
from sim.guest.process import GuestProcess
from sim.kernel import Kernel
from sim.units import US, seconds_to_ns

_LATENCY_NS = 20 * US


class _Reader:
    """One receiving end: what has arrived, and who waits for more."""

    def __init__(self, process: GuestProcess) -> None:
        self.process = process
        self.arrived: deque[bytes] = deque()
        self.waiter: Event | None = None


class MessageQueue:
    """One writer, any number of readers; every message reaches every reader, in order.

    Has the two methods of vLLM's MessageQueue that executors and workers call.
    """

    def __init__(self, kernel: Kernel, readers: list[GuestProcess]) -> None:
        self._kernel = kernel
        self._readers = [_Reader(process) for process in readers]
        self._by_process = {reader.process.process: reader for reader in self._readers}
        self._in_flight: deque[bytes] = deque()

    def enqueue(self, message: Any, timeout: float | None = None) -> None:
        self._in_flight.append(snapshot(message))
        self._kernel.call_in_look(_LATENCY_NS, self._deliver)

    def dequeue(self, timeout: float | None = None, indefinite: bool = False) -> Any:
        """The next message; TimeoutError after ``timeout`` seconds without one."""
        reader = self._by_process[self._kernel.require_task("dequeue").process]
        deadline_ns = None if timeout is None else self._kernel.now_ns + seconds_to_ns(timeout)
        while not reader.arrived:
            reader.waiter = self._kernel.event()
            left = None if deadline_ns is None else deadline_ns - self._kernel.now_ns
            if not self._kernel.wait(reader.waiter, left, what="a message of the executor"):
                raise TimeoutError
        return restore(reader.arrived.popleft(), reader.process)

    def shutdown(self) -> None:
        """Nothing to release; called by vLLM's executor at its end."""

    def _deliver(self) -> None:
        data = self._in_flight.popleft()
        for reader in self._readers:
            reader.arrived.append(data)
            if reader.waiter is not None and not reader.waiter.triggered:
                reader.waiter.succeed()
