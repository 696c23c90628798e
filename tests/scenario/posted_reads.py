"""What consumers read: the blocks that reads are posted for, by request and KV cache group."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from vllm.v1.kv_cache_interface import MambaSpec

from sim.probes import Probe
from sim.request_ids import logical_id
from sim.run import TestBed


class PostedReads(Probe):
    """Watches the consumers of a run.

    A block is counted for whom the scheduler gave it to last, and in the group it was given for,
    because layers of several groups may lie in the same bytes.
    """

    def __init__(self) -> None:
        self.kinds: list[str] = []
        """Of the consumer's cache groups, in order: attention, ring, state 0, state 1, ..."""
        self.blocks: dict[str, dict[str, set[int]]] = {}
        """By logical request and kind of group: the consumer's blocks."""
        self.prompts: dict[str, int] = {}
        """By logical request: tokens of the prompt."""
        self.hits: dict[str, int] = {}
        """By logical request: tokens that the consumer had itself, as vLLM told the connector."""
        self._holders: dict[tuple[str, int], tuple[str, int]] = {}
        """By node and block: request and group."""

    def watch(self, bed: TestBed) -> None:
        """To be called before the engines start."""
        self._find = bed.blocks.blocks_of
        bed.world.probes.add(self)

    def engine_started(self, engine: Any) -> None:
        if not engine.name.startswith("d"):
            return
        scheduler = engine.loop.scheduler
        self.kinds = list(_kinds(scheduler.kv_cache_config.kv_cache_groups))
        connector = scheduler.connector
        ask = connector.get_num_new_matched_tokens

        def note_and_ask(request: Any, local_hit: int) -> Any:
            name = logical_id(request.request_id)
            self.hits[name], self.prompts[name] = local_hit, request.num_prompt_tokens
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
            self.blocks.setdefault(request, defaultdict(set))[self.kinds[group]].add(block)

    def counts(self, request: str) -> dict[str, int]:
        """How many blocks of each group were read for ``request``; empty if none was."""
        return {kind: len(ids) for kind, ids in self.blocks.get(request, {}).items()}


def _kinds(groups: Sequence[Any]) -> Iterator[str]:
    states = itertools.count()
    for group in groups:
        spec = group.kv_cache_spec
        if isinstance(spec, MambaSpec):
            yield f"state {next(states)}"
        else:
            yield "attention" if spec.prefix_cacheable else "ring"
