"""Fail closed: nothing is served from a peer whose caches are laid out differently.

Two engines fit when they have the same layers in the same groups, with the same kind, block size
and type of entries, and where both have as many ranks, the same bytes a block. Whether a connector
could convert between others is not asked: it would have to write what fits, and that is judged by
content.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.model.footprint import Integers
from sim.oracles.base import Oracle, OracleContext
from sim.oracles.words import block_list

Layout = dict[str, tuple[Any, ...]]


class FailClosed(Oracle):
    """O8."""

    name = "fail-closed"
    summary = "Nothing is served from a peer whose caches are laid out differently"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._layouts: dict[str, tuple[int, Layout]] = {}
        self._versions: dict[tuple[str, int], Integers] = {}
        self._foreign: dict[tuple[str, int], Integers] = {}
        """Of each block the version that bytes of a peer that does not fit gave it, or -1."""
        self._peers: dict[str, str] = {}

    def engine_started(self, engine: Any) -> None:
        groups = engine.loop.scheduler.kv_cache_config.kv_cache_groups
        self._layouts[engine.name] = (
            engine.options.tp_size,
            layout_of(groups, engine.preset.cache_dtype),
        )
        for worker in engine.workers:
            place = engine.name, worker.rank
            self._versions[place] = worker.memory.versions
            self._foreign[place] = np.full(engine.num_blocks, -1, dtype=np.int64)

    def after_landing(self, landing: Any) -> None:
        landed = self.context.blocks.landed
        if landed is None or landed.source is None:
            return
        place = landed.destination
        source, ids = landed.source.node, place.touched.block_id
        foreign = self._foreign[place.node, place.rank]
        if self._difference(source, place.node) is not None:
            foreign[ids] = self._versions[place.node, place.rank][ids]
            self._peers[place.node] = source

    def blocks_read(self, node: str, rank: int, request_id: str, group: int, blocks: Any) -> None:
        foreign, versions = self._foreign[node, rank], self._versions[node, rank]
        used = blocks[foreign[blocks] == versions[blocks]]
        if not len(used):
            return
        peer = self._peers[node]
        self.report(
            f"a forward pass of {request_id} on {node} rank {rank} used "
            f"{block_list(used.tolist())}, read from {peer}, which does not fit: "
            f"{self._difference(peer, node)}",
            node=node,
            request_id=request_id,
            rank=rank,
            peer=peer,
            block_ids=used.tolist(),
        )

    def _difference(self, one: str, other: str) -> str | None:
        """What does not fit between two engines, in words; None when they fit."""
        (ranks, here), (other_ranks, there) = self._layouts[one], self._layouts[other]
        if here.keys() != there.keys():
            only = [name for name in (*here, *there) if (name in here) != (name in there)]
            return f"only one of them has {only[0]} and {len(only) - 1} more layers"
        for name, layout in here.items():
            fields = len(layout) if ranks == other_ranks else len(layout) - 1
            if layout[:fields] != there[name][:fields]:
                return f"{name} is {_words(layout)} on {one} and {_words(there[name])} on {other}"
        return None


def layout_of(groups: Any, cache_dtype: str) -> Layout:
    """Per layer: its group's number, the kind of cache, the block size, what it holds, the bytes
    a block."""
    return {
        name: (
            number,
            type(group.kv_cache_spec).__name__,
            group.kv_cache_spec.block_size,
            _entries(group.kv_cache_spec, cache_dtype),
            group.kv_cache_spec.page_size_bytes,
        )
        for number, group in enumerate(groups)
        for name in group.layer_names
    }


def _words(layout: tuple[Any, ...]) -> str:
    number, kind, block_size, entries, page = layout
    return (
        f"a {kind} of group {number} with {block_size} tokens of {entries} and {page} bytes a block"
    )


def _entries(spec: Any, cache_dtype: str) -> str:
    """The type of entries or states; what is bytes to torch is a type of vLLM's to kernels."""
    if str(getattr(spec, "dtype", None)) == "torch.uint8":
        return cache_dtype
    dtypes = getattr(spec, "dtypes", None) or [getattr(spec, "dtype", "mixed entries")]
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
