"""A device stream: operations run in order, each takes time, the host goes on meanwhile.

RDMA does not wait for a stream. An operation that zeroes a block after a READ has landed in it
wipes what was read, exactly as on hardware. What an operation reads it reads at its start, what
it writes it writes at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from simpy.events import Event

from sim.kernel import Kernel, Process

Action = Callable[[], None]
T = TypeVar("T")


class Gate:
    """Where the streams of a tensor-parallel group meet: a collective starts when all are there.

    A rank that never arrives (its process crashed) leaves the others hanging, as a collective
    does. ``shared`` is for what the ranks tell each other in the collective.
    """

    def __init__(self, count: int) -> None:
        self.shared: dict[str, int] = {}
        self._missing = count
        self._arrived: list[Action] = []

    def arrive(self, begin: Action) -> None:
        self._arrived.append(begin)
        self._missing -= 1
        if self._missing == 0:
            for start in self._arrived:
                start()


@dataclass(slots=True)
class _Operation:
    name: str
    duration_ns: int
    at_start: Action | None
    at_end: Action | None
    gate: Gate | None


class Stream:
    """One in-order queue of a device that belongs to ``process``.

    A pause of the process does not stop its device; a crash does, at once.
    """

    def __init__(self, kernel: Kernel, process: Process, name: str) -> None:
        self.kernel = kernel
        self.process = process
        self.name = name
        self._queue: deque[_Operation] = deque()
        self._running: _Operation | None = None
        self._enqueued = 0
        self._completed = 0
        self._waiters: deque[tuple[int, Event]] = deque()
        self._submit: Action | None = None

    @contextmanager
    def holding_back(self, submit: Action) -> Iterator[None]:
        """Inside, the host may keep back what it has launched; ``submit`` puts it here before
        anybody sees how far the stream is."""
        self._submit = submit
        try:
            yield
        finally:
            self._submit = None

    def enqueue(
        self,
        name: str,
        duration_ns: int,
        *,
        at_start: Action | None = None,
        at_end: Action | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._flush()
        self._queue.append(_Operation(name, duration_ns, at_start, at_end, gate))
        self._enqueued += 1
        if self._running is None:
            self._start_next()

    @property
    def position(self) -> int:
        """How many operations have been enqueued so far; what an event records."""
        self._flush()
        return self._enqueued

    def reached(self, position: int) -> bool:
        return self._completed >= position

    def wait_until(self, position: int) -> None:
        """Block the calling task until the operations up to ``position`` are done."""
        if self.reached(position):
            return
        event = self.kernel.event()
        self._waiters.append((position, event))
        self.kernel.wait(event, what=lambda: f"device stream {self.name}, {self._describe()}")

    def synchronize(self) -> None:
        self.wait_until(self.position)

    def copied(self, copy: Callable[[], T], num_bytes: int) -> T:
        """What ``copy`` returns, behind all that is queued; the copy itself takes no time here."""
        self.synchronize()
        return copy()

    def _flush(self) -> None:
        if self._submit is not None:
            self._submit()

    def _describe(self) -> str:
        current = self._running.name if self._running else "idle"
        return f"{self._enqueued - self._completed} operations to go, at {current}"

    def _start_next(self) -> None:
        operation = self._running = self._queue.popleft()
        if operation.gate is not None:
            operation.gate.arrive(self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        operation = self._running
        assert operation is not None
        if not self.process.alive:
            return
        self._run(operation, operation.at_start)
        self.kernel.call_later(operation.duration_ns, self._finish)

    def _run(self, operation: _Operation, action: Action | None) -> None:
        """A start may run in a guest's task, which must not take our exceptions for its own."""
        if action is not None:
            self.kernel.own(action)

    def _finish(self) -> None:
        if not self.process.alive:
            return
        operation = self._running
        assert operation is not None
        self._run(operation, operation.at_end)
        self._completed += 1
        self._running = None
        if self._queue:
            self._start_next()
        # A waiter may wait for an earlier position than one that came before it.
        for position, event in [w for w in self._waiters if self.reached(w[0])]:
            self._waiters.remove((position, event))
            event.succeed()


class DeviceEvent:
    """A mark in a stream, as torch.cuda.Event: recorded once or again, queried, waited for."""

    def __init__(self) -> None:
        self._stream: Stream | None = None
        self._position = 0

    def record(self, stream: Stream) -> None:
        self._stream = stream
        self._position = stream.position

    def query(self) -> bool:
        return self._stream is None or self._stream.reached(self._position)

    def synchronize(self) -> None:
        if self._stream is not None:
            self._stream.wait_until(self._position)
