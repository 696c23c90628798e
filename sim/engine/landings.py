"""RDMA that lands in an engine's caches: which blocks it wrote, and that they changed.

The fabric knows regions and offsets; here they become blocks of a rank's KV cache.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.fabric.memory import MemoryRegion
from sim.model.footprint import Footprint, Touched
from sim.probes import Probe
from sim.units import SECOND

if TYPE_CHECKING:
    from sim.engine.worker import Worker


class MemoryMap:
    """Finds the rank, layers and blocks behind ranges of registered memory."""

    def __init__(self) -> None:
        self._ranks: list[tuple[int, int, Worker, Footprint]] = []
        self._answers: deque[tuple[tuple[Any, ...], tuple[Worker, Touched] | None]] = deque(
            maxlen=2
        )
        """The last ones, with their questions: several ask about the two ends of a landing."""

    def add(self, worker: Worker) -> None:
        assert worker.memory is not None
        caches = worker.memory.caches
        start = caches.backing.data_ptr()
        self._ranks.append((start, start + caches.backing.nbytes, worker, caches.footprint()))

    def locate(
        self, region: MemoryRegion, offsets: Any, sizes: Any
    ) -> tuple[Worker, Touched] | None:
        """The rank whose caches hold ``region``, and the blocks in its ranges; None if none do.

        The two arrays must not be changed afterwards.
        """
        question = (region, offsets, sizes)
        for asked, answer in self._answers:
            if all(map(operator.is_, asked, question)):
                return answer
        answer = self._locate(region, offsets, sizes)
        self._answers.append((question, answer))
        return answer

    def _locate(
        self, region: MemoryRegion, offsets: Any, sizes: Any
    ) -> tuple[Worker, Touched] | None:
        for start, end, worker, footprint in self._ranks:
            if start <= region.address < end:
                in_backing = np.asarray(offsets) + (region.address - start)
                return worker, footprint.touched(in_backing, sizes)
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
        worker.memory.landed(
            touched.blocks, worker.engine.kernel.now_ns, lambda: _in_words(landing)
        )


def _in_words(landing: Any) -> str:
    verb = landing.operation.name.lower()
    posted_s = landing.posted_ns / SECOND
    return (
        f"transfer {landing.transfer_uid} ({verb} between {landing.initiator} and "
        f"{landing.target}, posted at {posted_s:.6f} s)"
    )
