"""Memory that other processes of the machine can map, without a name that could be left behind."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from typing import NamedTuple

from sim.model.arena import Arena


class Place(NamedTuple):
    """Where memory is for other processes: a descriptor of a process, and bytes in its file."""

    pid: int
    descriptor: int
    offset: int
    size: int


@dataclass(frozen=True)
class Segment:
    """A mapped file without a name."""

    descriptor: int
    mapping: mmap.mmap
    address: int

    @classmethod
    def create(cls, size: int) -> Segment:
        """Zeroed; ``size`` in bytes. Lives as long as some process maps it."""
        descriptor = os.memfd_create("kv-cache", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        return cls._map(descriptor, size)

    @classmethod
    def of_process(cls, place: Place) -> Segment:
        """Another process's, up to the end of ``place``.

        Raises:
            OSError: it is gone, or is somebody else's.
        """
        path = f"/proc/{place.pid}/fd/{place.descriptor}"
        return cls._map(os.open(path, os.O_RDWR | os.O_CLOEXEC), place.offset + place.size)

    @classmethod
    def _map(cls, descriptor: int, size: int) -> Segment:
        mapping = mmap.mmap(descriptor, size)
        return cls(descriptor, mapping, ctypes.addressof(ctypes.c_char.from_buffer(mapping)))

    def place_of(self, address: int, size: int) -> Place | None:
        """Where ``size`` bytes at ``address`` are; None if they are not all in this segment."""
        offset = address - self.address
        if not 0 <= offset <= len(self.mapping) - size:
            return None
        return Place(os.getpid(), self.descriptor, offset, size)


_SEGMENTS: list[Segment] = []


class SharedArena(Arena):
    """Gives out memory that can be registered with an engine of this process."""

    def allocate(self, size: int) -> memoryview:
        """Zeroed, page-aligned and writable; ``size`` in bytes."""
        _SEGMENTS.append(Segment.create(size))
        return memoryview(_SEGMENTS[-1].mapping)


def place_of(address: int, size: int) -> Place:
    """Where others find memory of this process.

    Raises:
        RuntimeError: it is not shared.
    """
    for segment in _SEGMENTS:
        place = segment.place_of(address, size)
        if place is not None:
            return place
    raise RuntimeError(f"{size} bytes at {address:#x} are not in memory of SharedArena")
