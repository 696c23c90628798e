"""What the network cards moved into the blocks of each request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from sim.oracles.blocks import BlockHistory, Locate
from sim.probes import Probe
from sim.request_ids import logical_id


class Transferred(msgspec.Struct, frozen=True, kw_only=True):
    """Of one request; ``blocks`` of all ranks and cache groups count once each by their number."""

    blocks: int
    bytes: int
    landings: int
    """Parts that landed by themselves; a connector mostly reads every layer in one."""


@dataclass
class _Count:
    blocks: set[int] = field(default_factory=set)
    bytes: int = 0
    landings: int = 0
    last: Any = None


class TransferCount(Probe):
    """Counts what lands, by the request that holds the blocks; but for ``excluded`` ones."""

    def __init__(self, locate: Locate, blocks: BlockHistory, excluded: str) -> None:
        self._locate = locate
        self._blocks = blocks
        self._excluded = excluded
        self._counts: dict[str, _Count] = {}

    def after_landing(self, landing: Any) -> None:
        found = self._locate(landing.destination, landing.destination_offsets, landing.sizes)
        if found is None:
            return
        worker, touched = found
        # Blocks of a common prefix belong to who came first, and are read for who came last.
        owner = self._blocks.node(worker.engine.name).newest_owner_among(touched.blocks)
        if owner is None or logical_id(owner).startswith(self._excluded):
            return
        count = self._counts.setdefault(logical_id(owner), _Count())
        count.bytes += int(landing.sizes.sum())
        count.landings += 1
        if not np.array_equal(touched.blocks, count.last):  # layers mostly repeat each other
            count.last = touched.blocks
            count.blocks.update(touched.blocks.tolist())

    def by_request(self) -> dict[str, Transferred]:
        """In order of the first landing."""
        return {
            request: Transferred(blocks=len(c.blocks), bytes=c.bytes, landings=c.landings)
            for request, c in self._counts.items()
        }
