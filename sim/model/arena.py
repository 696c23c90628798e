"""Device memory at addresses that are the same in every run.

Connectors tell their peers the addresses of their caches, so an address is part of the bytes on
the wire and of the record of a run. The operating system would hand out random ones. Here
allocation number n of a run always gets the n-th place of a fixed range, and the next run in
the same interpreter gets the same places, emptied, so that what a finished run left behind
keeps pointing to mapped memory.
"""

from __future__ import annotations

import ctypes
import mmap

from sim.errors import TestbedError

_BASE = 0x1000_0000_0000  # far from where Linux puts programs, heaps and libraries
DEVICE_BYTES = 8 << 30
MOST_DEVICES = 1024
_MAP_NORESERVE = 0x4000
_MAP_FIXED_NOREPLACE = 0x100000
_MADV_DONTNEED = 4

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

_MAPPED: set[int] = set()  # places this interpreter has mapped; they stay mapped


class Arena:
    """The device memory of one run; one run at a time in an interpreter."""

    def __init__(self) -> None:
        self._used: list[int] = []

    def allocate(self, size: int) -> memoryview:
        """Zeroed, page-aligned, writable memory of ``size`` bytes at the next place."""
        if size > DEVICE_BYTES:
            raise TestbedError(
                f"a KV cache of {size} bytes does not fit a place of {DEVICE_BYTES}; "
                "use geometry: reduced, or fewer blocks"
            )
        address = _BASE + len(self._used) * DEVICE_BYTES
        if len(self._used) == MOST_DEVICES:
            raise TestbedError(f"a run has at most {MOST_DEVICES} device memories")
        if address in _MAPPED:
            _empty(address)
        else:
            _map(address)
        self._used.append(address)
        return memoryview((ctypes.c_char * size).from_address(address)).cast("B")

    def release(self) -> None:
        """Give the memory itself back; the addresses stay."""
        for address in self._used:
            _empty(address)


def _map(address: int) -> None:
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
    got = _libc.mmap(address, DEVICE_BYTES, protection, flags, -1, 0)
    if got != address:
        raise TestbedError(
            f"the operating system did not give {DEVICE_BYTES} bytes of address space at "
            f"{address:#x} ({ctypes.get_errno()}); the testbed needs 64-bit Linux"
        )
    _MAPPED.add(address)


def _empty(address: int) -> None:
    if _libc.madvise(address, DEVICE_BYTES, _MADV_DONTNEED) != 0:
        raise TestbedError(f"cannot empty memory at {address:#x} ({ctypes.get_errno()})")
