"""The KV cache memory of one rank: real bytes, a version per block, and who wrote it last.

Every write, by a forward pass, by RDMA or by a zeroing kernel, bumps the version of the blocks
it touches, so that a check compares only what changed since the request last looked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.model.caches import KVCaches

BlockArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Write:
    """One event that wrote to blocks; ``describe`` makes the sentence only when somebody asks."""

    time_ns: int
    describe: Callable[[], str]


class RankMemory:
    """Block versions and the last writers, beside the caches themselves."""

    def __init__(self, caches: KVCaches, num_blocks: int) -> None:
        self.caches = caches
        self.versions: BlockArray = np.zeros(num_blocks, dtype=np.int64)
        self.landings = 0
        """How often anything but this rank's own device has written."""
        self._writes: list[Write] = []
        self._last_write: BlockArray = np.full(num_blocks, -1, dtype=np.int64)

    def wrote(self, block_ids: Any, time_ns: int, describe: Callable[[], str]) -> None:
        """Note that ``block_ids`` (int array, duplicates allowed) were written to."""
        self._writes.append(Write(time_ns, describe))
        self.versions[block_ids] += 1
        self._last_write[block_ids] = len(self._writes) - 1

    def landed(self, block_ids: Any, time_ns: int, describe: Callable[[], str]) -> None:
        """Note a write that did not wait for the device's stream."""
        self.landings += 1
        self.wrote(block_ids, time_ns, describe)

    def last_write(self, block_id: int) -> Write | None:
        index = int(self._last_write[block_id])
        return self._writes[index] if index >= 0 else None

    def zero(self, block_ids: list[int]) -> None:
        for layer in self.caches.layers:
            self.caches.slots(layer)[block_ids] = 0
