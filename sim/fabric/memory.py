"""Registered memory: real bytes that a simulated NIC may touch, and how it copies them.

Nothing here takes time. Whoever registers memory by its bare address keeps it alive; a region
that stands for a tensor keeps the tensor's storage alive by itself.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]

# Measured: below, numpy's fixed cost per call is more than a loop's; above, its second copy is.
_FEW = 16
_LARGE_SEGMENT = 8192
_ROUND = 256 * 1024  # bytes that stay in a processor cache between gathering and scattering


class Access(enum.IntFlag):
    """What a NIC may do to a memory region; values of the verbs interface."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


ALL_ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC


class MemoryRegion:
    """``size`` bytes at ``address``, known to NICs by ``key`` until ``invalidate``.

    ``owner`` is the key of the engine that registered it, ``node`` its machine. NICs refuse it
    while it ``is_suspended``.
    """

    __slots__ = (
        "access",
        "address",
        "is_registered",
        "is_suspended",
        "keep_alive",
        "key",
        "node",
        "owner",
        "size",
        "view",
    )

    def __init__(
        self, address: int, size: int, *, key: int, owner: str, node: str, keep_alive: Any = None
    ) -> None:
        self.address = address
        self.size = size
        self.key = key
        self.owner = owner
        self.node = node
        self.keep_alive = keep_alive
        self.access = ALL_ACCESS
        self.is_registered = True
        self.is_suspended = False
        self.view: Bytes = _view(address, size)

    @property
    def valid(self) -> bool:
        """Whether NICs may use it now."""
        return self.is_registered and not self.is_suspended

    def allows(self, access: Access) -> bool:
        """Whether the region is valid and was registered for ``access``."""
        return self.valid and access in self.access

    def invalidate(self) -> None:
        """Deregister: every later use by a NIC is a protection error."""
        self.is_registered = False


def _view(address: int, size: int) -> Bytes:
    if size == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def copy_segments(
    source: Bytes,
    source_offsets: Offsets,
    destination: Bytes,
    destination_offsets: Offsets,
    sizes: Offsets,
) -> None:
    """Copy segment after segment; segments of one size are copied by one numpy call."""
    if len(sizes) <= _FEW:
        _copy_one_by_one(source, source_offsets, destination, destination_offsets, sizes)
        return
    for size in np.unique(sizes).tolist():
        chosen = np.flatnonzero(sizes == size)
        here, there = source_offsets[chosen], destination_offsets[chosen]
        if len(chosen) <= _FEW or size >= _LARGE_SEGMENT:
            _copy_one_by_one(source, here, destination, there, sizes[chosen])
        elif size:
            _copy_equal(source, here, destination, there, size)


def _copy_one_by_one(
    source: Bytes, here: Offsets, destination: Bytes, there: Offsets, sizes: Offsets
) -> None:
    for begin, to, size in zip(here.tolist(), there.tolist(), sizes.tolist(), strict=True):
        destination[to : to + size] = source[begin : begin + size]


def _copy_equal(
    source: Bytes, here: Offsets, destination: Bytes, there: Offsets, size: int
) -> None:
    read, written = _windows(source, size), _windows(destination, size)
    rows = _ROUND // size
    for first in range(0, len(here), rows):
        written[there[first : first + rows]] = read[here[first : first + rows]]


def _windows(view: Bytes, size: int) -> Bytes:
    """Every run of ``size`` bytes of ``view``, by its first byte; shares the memory."""
    return as_strided(view, shape=(len(view) - size + 1, size), strides=(1, 1))


def gather(view: Bytes, offsets: Offsets, sizes: Offsets) -> Bytes:
    """A copy of the segments, one after the other."""
    payload = np.empty(int(sizes.sum()), np.uint8)
    copy_segments(view, offsets, payload, _packed(sizes), sizes)
    return payload


def scatter(payload: Bytes, view: Bytes, offsets: Offsets, sizes: Offsets) -> None:
    """The reverse of ``gather``."""
    copy_segments(payload, _packed(sizes), view, offsets, sizes)


def _packed(sizes: Offsets) -> Offsets:
    return np.cumsum(sizes) - sizes
