"""What consumers read: the blocks that reads are posted for, by request and KV cache group."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sim.probes import Probe
from sim.request_ids import logical_id
from sim.run import TestBed


class PostedReads(Probe):
    """Pass it to ``run`` as ``prepare``. Only requests that are read for are known to it.

    A block is counted for whom the scheduler gave it to last, and in the group it was given for,
    because layers of several groups may lie in the same bytes.
    """

    def __init__(self) -> None:
        self.blocks: dict[str, dict[int, set[int]]] = {}
        """By logical request and group: the consumer's blocks."""
        self.hits: dict[str, int] = {}
        """By logical request: tokens that the consumer had itself, as vLLM told the connector."""
        self._holders: dict[tuple[str, int], tuple[str, int]] = {}

    def __call__(self, bed: TestBed) -> None:
        self._find = bed.blocks.blocks_of
        bed.world.probes.add(self)

    def engine_started(self, engine: Any) -> None:
        connector = engine.loop.scheduler.connector
        if connector is None or not engine.name.startswith("d"):
            return
        ask = connector.get_num_new_matched_tokens

        def note_and_ask(request: Any, local_hit: int) -> Any:
            self.hits[logical_id(request.request_id)] = local_hit
            return ask(request, local_hit)

        connector.get_num_new_matched_tokens = note_and_ask

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        self._holders.update(
            ((node, block), (logical_id(request_id), group)) for block in block_ids if block
        )

    def transfer_posted(self, chain: Any) -> None:
        if chain.operation != "read":
            return
        node, blocks = self._find(chain)
        for block in blocks.tolist():
            request, group = self._holders[node, block]
            self.blocks.setdefault(request, defaultdict(set))[group].add(block)

    def counts(self, request: str) -> dict[int, int]:
        """How many blocks of each group were read for ``request``; empty if none was."""
        return {group: len(ids) for group, ids in sorted(self.blocks.get(request, {}).items())}
