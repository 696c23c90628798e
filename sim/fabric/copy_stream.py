"""Streams of GPU copies: in order within one, at the same time across several.

As with a chain of work requests, the copies of one call land by one event, whole.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simpy.events import Event

from sim.fabric.gpu import GpuAllocation
from sim.fabric.link import Flow
from sim.fabric.memory import Bytes, MemoryRegion, copy_segments, gather, scatter
from sim.fabric.verdicts import CopyItem, PeerPair, refuse
from sim.fabric.work import Landing, Operation, Segments
from sim.kernel import Process
from sim.verdict import Corrupt, Delay, Deliver, Drop, Fail, Verdict

if TYPE_CHECKING:
    from sim.fabric.fabric import Fabric


@dataclass(frozen=True, slots=True)
class MappedMemory:
    """Registered memory that copies use: to the end of its allocation, not of what was named."""

    allocation: GpuAllocation
    region: MemoryRegion


@dataclass(eq=False, slots=True)
class Copies:
    """The copies of one call. ``done`` happens when they are over, ``error`` says how.

    ``launches`` is how many operations they are on the stream.
    """

    pair: PeerPair
    operation: Operation
    segments: Segments
    local: MappedMemory
    remote: MappedMemory
    transfer_uid: int
    launches: int
    done: Event
    posted_ns: int = 0
    over: bool = False
    error: str = ""

    def landing(self) -> Landing:
        """What observers of the memory are told."""
        here = (self.local.region, self.segments.local_offsets)
        there = (self.remote.region, self.segments.remote_offsets)
        is_read = self.operation is Operation.READ
        (destination, to), (source, begin) = (here, there) if is_read else (there, here)
        return Landing(
            self.pair.initiator,
            self.pair.target,
            self.operation,
            source,
            begin,
            destination,
            to,
            self.segments.sizes,
            self.posted_ns,
            self.transfer_uid,
            queue_pair=0,
        )

    @property
    def destination(self) -> MappedMemory:
        """Where the bytes go."""
        return self.local if self.operation is Operation.READ else self.remote

    @property
    def source(self) -> MappedMemory:
        """Where they come from."""
        return self.remote if self.operation is Operation.READ else self.local


class CopyStream:
    """Belongs to a process, and stops when the process crashes."""

    def __init__(self, fabric: Fabric, process: Process) -> None:
        self._fabric = fabric
        self._process = process
        self._incarnation = process.incarnation
        self._waiting: deque[Copies] = deque()
        self._running = False

    def enqueue(self, copies: Copies) -> None:
        """Do ``copies`` after everything enqueued before."""
        copies.posted_ns = self._fabric.kernel.now_ns
        self._record("copies-enqueued", copies)
        self._waiting.append(copies)
        if not self._running:
            self._start_next()

    @property
    def _alive(self) -> bool:
        return self._process.alive and self._process.incarnation == self._incarnation

    def _start_next(self) -> None:
        self._running = bool(self._waiting)
        if self._running:
            copies = self._waiting.popleft()
            setup_ns = copies.launches * self._fabric.gpus.profile.copy_ns
            self._fabric.kernel.call_later(setup_ns, self._send, copies)

    def _send(self, copies: Copies) -> None:
        path = self._fabric.gpus.path(copies.source.allocation, copies.destination.allocation)
        flow = Flow(
            copies.segments.total_bytes, path, path[0].bytes_per_ns, lambda: self._sent(copies)
        )
        self._fabric.links.start(flow)

    def _sent(self, copies: Copies) -> None:
        if not self._alive:
            return
        verdict = self._fabric.verdicts.ask(CopyItem(copies, copies.pair))
        if isinstance(verdict, Delay):
            self._fabric.kernel.call_later(verdict.by_ns, self._finish, copies, verdict)
        else:
            self._finish(copies, verdict)

    def _finish(self, copies: Copies, verdict: Verdict) -> None:
        if not self._alive:
            return
        match verdict:
            case Deliver() | Delay():
                self._land(copies, None)
            case Corrupt(change=change):
                landing = copies.landing()
                payload = gather(landing.source.view, landing.source_offsets, landing.sizes)
                change(payload)
                self._land(copies, payload)
            case Drop():
                self._record("copies-hang", copies)
                return
            case Fail(message=message):
                copies.error = message or "unspecified launch failure"
            case _:
                refuse(CopyItem(copies, copies.pair), verdict)
        self._record("copies-over", copies, error=copies.error)
        copies.over = True
        copies.done.succeed()
        self._start_next()

    def _land(self, copies: Copies, payload: Bytes | None) -> None:
        landing = copies.landing()
        if copies.destination.allocation.owned:
            with self._fabric.observed(landing):
                _copy(landing, payload)
        else:  # it is mapped here still, and nobody else's any more
            _copy(landing, payload)
        self._record("copied", copies, owned=copies.destination.allocation.owned)

    def _record(self, kind: str, copies: Copies, **fields: str | bool) -> None:
        self._fabric.kernel.record(
            kind,
            initiator=copies.pair.initiator,
            target=copies.pair.target,
            operation=copies.operation.value,
            uid=copies.transfer_uid,
            copies=len(copies.segments.sizes),
            bytes=copies.segments.total_bytes,
            **fields,
        )


def _copy(landing: Landing, payload: Bytes | None) -> None:
    there, to = landing.destination.view, landing.destination_offsets
    if payload is None:
        here, begin = landing.source.view, landing.source_offsets
        copy_segments(here, begin, there, to, landing.sizes)
    else:
        scatter(payload, there, to, landing.sizes)
