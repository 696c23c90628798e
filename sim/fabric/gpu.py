"""The GPUs of machines: who may map whose memory, and the links between them.

A process sees GPUs of its own, which it numbers from 0; two processes never share one. Memory
that one process exports another process of the machine can map, and what is mapped stays there
after its owner is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sim.fabric.nic import Direction
from sim.fabric.profile import XgmiProfile
from sim.kernel import Process

IPC_HANDLE_BYTES = 64


@dataclass(eq=False)
class GpuAllocation:
    """Device memory of a process, by the address it has there."""

    process: Process
    incarnation: int
    device: int
    base: int
    size: int
    handle: bytes
    keep_alive: Any

    @property
    def owned(self) -> bool:
        """Whether the process that allocated it still runs."""
        return self.process.alive and self.process.incarnation == self.incarnation

    def holds(self, process: Process, address: int, size: int) -> bool:
        """Whether a range of ``process`` is part of it."""
        mine = self.owned and self.process is process
        return mine and self.base <= address and address + size <= self.base + self.size


class Gpus:
    """All GPUs of a run."""

    def __init__(self, profile: XgmiProfile) -> None:
        self.profile = profile
        self._allocations: list[GpuAllocation] = []
        self._numbers: dict[str, dict[tuple[str, int], int]] = {}
        self._links: dict[tuple[str, str], Direction] = {}

    def bus_id(self, process: Process, device: int) -> str:
        """The PCI address of a process's GPU: a machine's GPUs in the order of their first use."""
        numbers = self._numbers.setdefault(process.node.name, {})
        number = numbers.setdefault((process.path, device), len(numbers))
        return f"0000:{5 + number:02x}:00.0"

    def export(
        self, process: Process, device: int, address: int, size: int, keep_alive: Any
    ) -> GpuAllocation:
        """The allocation behind an address; memory that was not seen before is a new one."""
        known = self.allocation_of(process, address, size)
        if known is not None:
            return known
        number = len(self._allocations) + 1
        handle = number.to_bytes(8, "little").ljust(IPC_HANDLE_BYTES, b"\x01")
        allocation = GpuAllocation(
            process, process.incarnation, device, address, size, handle, keep_alive
        )
        self._allocations.append(allocation)
        return allocation

    def allocation_of(self, process: Process, address: int, size: int) -> GpuAllocation | None:
        """Which allocation of ``process`` a range is part of."""
        for allocation in self._allocations:
            if allocation.holds(process, address, size):
                return allocation
        return None

    def open(self, process: Process, handle: bytes) -> GpuAllocation | None:
        """Map what another process exported; None if it is gone or on another machine."""
        for allocation in self._allocations:
            if allocation.handle == handle:
                near = allocation.process.node is process.node
                return allocation if near and allocation.owned else None
        return None

    def path(self, source: GpuAllocation, destination: GpuAllocation) -> tuple[Direction, ...]:
        """What a copy goes through: the link between two GPUs, or one GPU's own memory."""
        here = f"{source.process.path}/{source.device}"
        there = f"{destination.process.path}/{destination.device}"
        if (here, there) not in self._links:
            profile = self.profile
            rate = profile.local_bytes_per_ns if here == there else profile.link_bytes_per_ns
            self._links[here, there] = Direction(rate)
        return (self._links[here, there],)
