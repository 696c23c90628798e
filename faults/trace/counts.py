"""The counters of a trace: blocks, requests and transfers in flight, by engine."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Any

from sim.request_ids import leg_of

NULL_BLOCK = 0


class Counts:
    """Follows records; each method returns the engine's new values.

    ``num_blocks`` is the size of every engine's pool, if it is known.
    """

    def __init__(self, num_blocks: int | None) -> None:
        self._num_blocks = num_blocks
        self._holders: dict[str, Tally[int]] = {}
        self._blocks_of: dict[tuple[str, str], list[int]] = {}
        self._open: dict[str, dict[str, None]] = {}
        self._flying: Tally[str] = Tally()

    def held(self, record: dict[str, Any]) -> dict[str, int]:
        """A request got blocks; a block that several share counts once."""
        node = record["node"]
        ids = [i for low, high in record["blocks"] for i in range(low, high + 1) if i != NULL_BLOCK]
        self._blocks_of.setdefault((node, leg_of(record["request"])), []).extend(ids)
        self._holders.setdefault(node, Tally()).update(ids)
        return self._blocks(node)

    def freed(self, record: dict[str, Any]) -> dict[str, int]:
        """A request let go of all its blocks."""
        node = record["node"]
        holders = self._holders.setdefault(node, Tally())
        for block in self._blocks_of.pop((node, leg_of(record["request"])), ()):
            holders[block] -= 1
            if not holders[block]:
                del holders[block]
        return self._blocks(node)

    def restarted(self, node: str) -> dict[str, int]:
        """An engine begins with an empty pool."""
        self._holders.pop(node, None)
        self._blocks_of = {key: ids for key, ids in self._blocks_of.items() if key[0] != node}
        return self._blocks(node)

    def leg(self, node: str, leg: str, *, is_open: bool) -> dict[str, int]:
        """A leg was sent to an engine, or has ended there."""
        legs = self._open.setdefault(node, {})
        if is_open:
            legs[leg] = None
        else:
            legs.pop(leg, None)
        return self.queue(node)

    def queue(self, node: str) -> dict[str, int]:
        """How many requests wait for blocks, and how many have some."""
        legs = self._open.get(node, {})
        running = sum((node, leg) in self._blocks_of for leg in legs)
        return {"waiting": len(legs) - running, "running": running}

    def transfer(self, node: str, change: int) -> dict[str, int]:
        """A transfer was posted by an engine's card (+1), or has ended (-1)."""
        self._flying[node] += change
        return {"in flight": self._flying[node]}

    def _blocks(self, node: str) -> dict[str, int]:
        held = len(self._holders.get(node, ()))
        if self._num_blocks is None:
            return {"held": held}
        return {"free": self._num_blocks - 1 - held, "held": held}
