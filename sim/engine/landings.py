"""RDMA that lands in an engine's caches: which blocks it wrote, and that they changed.

The fabric knows regions and offsets; here they become blocks of a rank's KV cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.fabric.memory import MemoryRegion
from sim.model.footprint import Footprint, Touched
from sim.probes import Probe

if TYPE_CHECKING:
    from sim.engine.worker import Worker


class MemoryMap:
    """Finds the rank, layers and blocks behind ranges of registered memory."""

    def __init__(self) -> None:
        self._ranks: list[tuple[int, int, Worker, Footprint]] = []

    def add(self, worker: Worker) -> None:
        assert worker.memory is not None
        caches = worker.memory.caches
        start = caches.backing.data_ptr()
        self._ranks.append((start, start + caches.backing.nbytes, worker, caches.footprint()))

    def locate(
        self, region: MemoryRegion, offsets: Any, sizes: Any
    ) -> tuple[Worker, Touched] | None:
        """The rank whose caches hold ``region``, and the blocks in its ranges; None if none do."""
        for start, end, worker, footprint in self._ranks:
            if start <= region.address < end:
                return worker, footprint.touched(np.asarray(offsets) + region.address - start, sizes)
        return None


class LandingWatch(Probe):
    """Bumps the versions of the blocks that RDMA wrote, and remembers who wrote them."""

    def __init__(self, memory_map: MemoryMap) -> None:
        self._map = memory_map

    def after_landing(self, landing: Any) -> None:
        found = self._map.locate(landing.destination, landing.destination_offsets, landing.sizes)
        if found is None:
            return
        worker, touched = found
        assert worker.memory is not None
        worker.memory.wrote(
            np.unique(touched.block_id),
            worker.engine.kernel.now_ns,
            lambda: f"transfer {landing.transfer_uid} ({landing.operation.name.lower()} between "
            f"{landing.initiator} and {landing.target}, posted at {landing.posted_ns / 1e9:.6f} s)",
        )
