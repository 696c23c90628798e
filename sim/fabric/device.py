"""An engine's opened RDMA device: its NIC, registered memory, queue pairs and completion thread.

The NIC works on whatever happens to the process. The completion thread belongs to the process:
it stands still while the process is paused and is gone when it crashed. It is native code and
needs no GIL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simpy.events import Event

from sim.fabric.memory import MemoryRegion
from sim.fabric.nic import Nic
from sim.fabric.queue_pair import QueuePair
from sim.fabric.timers import Timers
from sim.kernel import Process

if TYPE_CHECKING:
    from sim.fabric.fabric import Fabric

Handler = Callable[[Any], None]


class Device:
    """Opened by one engine, whose key names it. ``handle`` gets every completion and event."""

    def __init__(
        self, fabric: Fabric, process: Process, key: str, nic: Nic, handle: Handler
    ) -> None:
        self.fabric = fabric
        self.process = process
        self.key = key
        self.nic = nic
        self.queue_pairs: list[QueuePair] = []
        self._incarnation = process.incarnation
        self._open = True
        self._regions: dict[int, MemoryRegion] = {}
        self._handle = handle
        self._notices: deque[Any] = deque()
        self._wake: Event | None = None
        fabric.kernel.spawn(
            process, self._reap, name="rdma-completions", guest=False, needs_gil=False
        )

    @property
    def alive(self) -> bool:
        """Whether the process that opened it still runs and has not closed it."""
        return self._open and self.process.alive and self.process.incarnation == self._incarnation

    def register(self, address: int, size: int, keep_alive: Any = None) -> MemoryRegion:
        """Make memory known to the NIC."""
        region = MemoryRegion(
            address,
            size,
            key=self.fabric.next_key(),
            owner=self.key,
            node=self.process.node.name,
            keep_alive=keep_alive,
        )
        self._regions[region.key] = region
        return region

    def region(self, key: int) -> MemoryRegion | None:
        """The valid memory region with this key, as a remote NIC looks it up."""
        region = self._regions.get(key)
        return region if region is not None and region.valid else None

    @property
    def regions(self) -> list[MemoryRegion]:
        """What is registered now."""
        return [region for region in self._regions.values() if region.is_registered]

    def create_queue_pair(self, depth: int, timers: Timers | None = None) -> QueuePair:
        """A queue pair in state RESET, with the profile's timers unless others are given."""
        number = self.fabric.next_queue_pair_number()
        timers = timers if timers is not None else self.fabric.profile.timers
        queue_pair = QueuePair(self.fabric, self, number, depth, timers)
        self.queue_pairs.append(queue_pair)
        return queue_pair

    def notify(self, notice: Any) -> None:
        """Hand a completion or an event to the completion thread."""
        self._notices.append(notice)
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()

    def crashed(self) -> None:
        """The process is gone: its queue pairs go too, in the middle of what they do."""
        for queue_pair in self.queue_pairs:
            queue_pair.destroy()

    def close(self) -> None:
        """Destroy the queue pairs, forget the memory, end the completion thread."""
        self._open = False
        for queue_pair in self.queue_pairs:
            queue_pair.destroy()
        for region in self._regions.values():
            region.invalidate()
        self.notify(None)

    def _reap(self) -> None:
        kernel = self.fabric.kernel
        while self._open:
            if not self._notices:
                self._wake = kernel.event()
                kernel.wait(self._wake, what="a completion")
            notice = self._notices.popleft()
            if self._open:
                self._handle(notice)
