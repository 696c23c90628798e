"""Cache contents that a stale transfer brought: what is still there, and who reads it.

Content is tracked by block and layer, because a connector may move each layer by itself. Once
anything else writes to a block, nothing is said about it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.model.footprint import Integers


@dataclass(eq=False, slots=True)
class StaleTransfer:
    """One landing that copied blocks which its request did not hold."""

    source_states: dict[int, str]
    """Who had each source block when it landed, in words."""
    node: str
    transfer_uid: int
    landed_ns: int
    used: bool = False


@dataclass(frozen=True, slots=True)
class Taint:
    """Where a block's content in one layer came from."""

    transfer: StaleTransfer
    source_block: int


class TaintedBlocks:
    """Of one rank. ``versions`` is the rank's own count of writes by block."""

    def __init__(self, versions: Any) -> None:
        self._versions = versions
        self._layers: dict[int, dict[int, Taint]] = {}
        self._seen: dict[int, int] = {}

    def forget_overwritten(self) -> None:
        """Call before a landing: whatever wrote since the last one was something else."""
        for block, version in list(self._seen.items()):
            if self._versions[block] != version:
                self._drop(block)

    def landed(
        self, blocks: Integers, layers: Integers, taints: dict[int, Taint], unchanged: Integers
    ) -> None:
        """Call after a landing that touched ``blocks`` in ``layers`` (parallel arrays).

        ``taints`` says which blocks got stale content. Those of ``unchanged`` have what they
        had before, all others got good content.
        """
        if not taints and not self._layers:
            return
        as_before = dict.fromkeys(unchanged.tolist())
        for block, layer in zip(blocks.tolist(), layers.tolist(), strict=True):
            if block in taints:
                self._layers.setdefault(block, {})[layer] = taints[block]
            elif block in self._layers and block not in as_before:
                self._layers[block].pop(layer, None)
        for block in dict.fromkeys(blocks.tolist()):
            if block in self._layers:
                self._seen[block] = int(self._versions[block])
                if not self._layers[block]:
                    self._drop(block)

    def take(self, blocks: Integers, layers: frozenset[int]) -> dict[int, Taint]:
        """Somebody reads ``blocks`` in ``layers``: the stale content there, then forgotten.

        The same blocks may hold others' layers, too, as those of a recurrent group that had them.
        """
        if not self._layers:
            return {}
        self.forget_overwritten()
        tainted = np.fromiter(self._layers, dtype=np.int64, count=len(self._layers))
        hit = tainted[np.isin(tainted, blocks)].tolist()
        hit = [block for block in hit if not layers.isdisjoint(self._layers[block])]
        found = {
            block: next(taint for layer, taint in self._layers[block].items() if layer in layers)
            for block in sorted(hit)
        }
        for block in hit:
            for taint in self._layers[block].values():
                taint.transfer.used = True
            self._drop(block)
        return found

    def _drop(self, block: int) -> None:
        del self._layers[block]
        del self._seen[block]
