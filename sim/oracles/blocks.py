"""Who held which block when, on every engine, and which blocks a landing connects.

Holding is what the scheduler says. A block is *owned* by the request that took it while nobody
held it; others that find it in the prefix cache hold it too, but do not own it. The null block
belongs to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sim.model.footprint import Integers, Touched
from sim.model.verify import Flags
from sim.oracles.landed import LandedBlocks, Place
from sim.oracles.words import seconds
from sim.probes import Probe
from sim.request_ids import logical_id

Locate = Callable[[Any, Any, Any], "tuple[Any, Touched] | None"]

NULL_BLOCK = 0
_STILL_HELD = -1
_NOBODY = -1
_NO_BLOCKS = np.empty(0, dtype=np.int64)


class Clock(Protocol):
    """The part of the kernel that is needed here."""

    @property
    def now_ns(self) -> int:
        """Virtual time."""


class NodeBlocks:
    """The blocks of one incarnation of an engine, as arrays over block ids.

    ``pool_blocks`` are the block objects of vLLM's pool. Their reference counts tell who is
    alone, because the pool may take single blocks back (those that have left a sliding window)
    without another word. ``lenders`` are, by logical request, others whose blocks it was told of
    as its own.
    """

    def __init__(self, pool_blocks: Sequence[Any], lenders: Mapping[str, list[str]]) -> None:
        num_blocks = len(pool_blocks)
        self._lenders = lenders
        self._pool_blocks = pool_blocks
        self.holders: Integers = np.zeros(num_blocks, dtype=np.int64)
        self.owner: Integers = np.full(num_blocks, _NOBODY, dtype=np.int64)
        """Number of the request that owns or last owned the block."""
        self.former: Integers = np.full(num_blocks, _NOBODY, dtype=np.int64)
        """Number of the request that owned the block before the one that owns or last owned it."""
        self.since_ns: Integers = np.zeros(num_blocks, dtype=np.int64)
        self.let_go_ns: Integers = np.full(num_blocks, _STILL_HELD, dtype=np.int64)
        """When the owner let go of the block, or -1."""
        self.generation: Integers = np.zeros(num_blocks, dtype=np.int64)
        """Counts the block's owners."""
        self.requests: list[str] = []
        self.freed_ns: dict[str, int] = {}
        self.refused: str | None = None
        """The last request that wanted more blocks than there were, if nobody got any since."""
        self._numbers: dict[str, int] = {}
        self._held: dict[str, list[tuple[Integers, Integers]]] = {}
        self._legs: dict[str, dict[str, None]] = {}

    def number_of(self, request_id: str) -> int:
        number = self._numbers.get(request_id)
        if number is None:
            number = self._numbers[request_id] = len(self.requests)
            self.requests.append(request_id)
        return number

    def hold(self, request_id: str, block_ids: Sequence[int], now_ns: int) -> None:
        ids = np.array(block_ids, dtype=np.int64)
        ids = ids[ids != NULL_BLOCK]
        self.refused = None
        references = np.array([self._pool_blocks[i].ref_cnt for i in ids.tolist()], dtype=np.int64)
        self._own(request_id, ids[(references == 1) | (self.holders[ids] == 0)], now_ns)
        self.holders[ids] += 1
        self._held.setdefault(request_id, []).append((ids, self.generation[ids]))
        self._legs.setdefault(logical_id(request_id), {})[request_id] = None

    def _own(self, request_id: str, ids: Integers, now_ns: int) -> None:
        self.holders[ids] = 0
        self.former[ids] = self.owner[ids]
        self.owner[ids] = self.number_of(request_id)
        self.since_ns[ids] = now_ns
        self.let_go_ns[ids] = _STILL_HELD
        self.generation[ids] += 1

    def free(self, request_id: str, now_ns: int) -> None:
        ids = self.held_by(request_id)
        self._held.pop(request_id, None)
        self.holders[ids] -= 1
        owned = ids[self.owner[ids] == self.number_of(request_id)]
        owned = owned[self.let_go_ns[owned] == _STILL_HELD]
        self.let_go_ns[owned] = now_ns
        self.freed_ns[request_id] = now_ns

    def held_by(self, request_id: str) -> Integers:
        """The blocks that a request holds."""
        parts = self._held.get(request_id, ())
        return np.concatenate([_NO_BLOCKS, *(self._still(ids, then) for ids, then in parts)])

    def _still(self, ids: Integers, generations: Integers) -> Integers:
        still: Integers = ids[self.generation[ids] == generations]
        return still

    def held_for(self, logical: str) -> Integers:
        """The blocks that all legs of a logical request hold, and those of its lenders."""
        names = (logical, *self._lenders.get(logical, ()))
        return np.concatenate([self.held_by_legs(name) for name in names])

    def held_by_legs(self, logical: str) -> Integers:
        """The blocks that all legs of a logical request hold themselves."""
        legs = self._legs.get(logical, ())
        return np.concatenate([_NO_BLOCKS, *(self.held_by(leg) for leg in legs)])

    def flags(self, ids: Integers) -> Flags:
        """By block, whether it is one of ``ids``."""
        flags = np.zeros(len(self.holders), dtype=bool)
        flags[ids] = True
        return flags

    def let_go(self, logical: str) -> list[tuple[str, int]]:
        """The legs of a logical request that have given up their blocks, and when they did."""
        legs = self._legs.get(logical, ())
        return [(leg, self.freed_ns[leg]) for leg in legs if leg not in self._held]

    def holding(self) -> list[str]:
        """All requests that hold blocks, in order of arrival."""
        return list(self._held)

    def holders_of(self, block: int) -> list[str]:
        """The requests that hold ``block``, in order of arrival."""
        return [request for request in self.holding() if (self.held_by(request) == block).any()]

    def owner_of(self, block: int) -> str | None:
        """The request that owns or last owned ``block``."""
        number = int(self.owner[block])
        return None if number == _NOBODY else self.requests[number]

    def owners_among(self, ids: Integers) -> list[str]:
        """The requests that own one of the blocks and hold it still, in order of arrival."""
        owners = self.owner[ids[self.let_go_ns[ids] == _STILL_HELD]]
        return [self.requests[n] for n in np.unique(owners).tolist() if n != _NOBODY]

    def newest_owner_among(self, ids: Integers) -> str | None:
        """The request that came last of those that own one of the blocks and hold it still."""
        owners = self.owner[ids[self.let_go_ns[ids] == _STILL_HELD]]
        number = int(owners.max()) if owners.size else _NOBODY
        return None if number == _NOBODY else self.requests[number]

    def state_of(self, block: int) -> str:
        """Who has ``block``, in words."""
        holders = self.holders_of(block)
        if holders:
            return f"held by {', '.join(holders)} since {seconds(int(self.since_ns[block]))}"
        owner = self.owner_of(block)
        if owner is None:
            return "never held"
        return f"free since {owner} let go of it at {seconds(int(self.let_go_ns[block]))}"


class BlockHistory(Probe):
    """Follows the blocks of all engines. It must be called before the oracles that ask it."""

    def __init__(self, clock: Clock, locate: Locate) -> None:
        """``locate`` finds the worker and blocks behind registered memory, as MemoryMap does."""
        self._clock = clock
        self._locate = locate
        self._nodes: dict[str, NodeBlocks] = {}
        self._lenders: dict[str, list[str]] = {}
        self.landed: LandedBlocks | None = None
        """The landing that is under way, if its destination is a cache in use."""

    def node(self, name: str) -> NodeBlocks:
        """The blocks of the engine's current incarnation."""
        return self._nodes[name]

    def engine_started(self, engine: Any) -> None:
        pool = engine.loop.scheduler.kv_cache_manager.block_pool
        self._nodes[engine.name] = NodeBlocks(pool.blocks, self._lenders)

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        self._nodes[node].hold(request_id, block_ids, self._clock.now_ns)

    def params_lent(self, request_id: str, owner: str) -> None:
        self._lenders.setdefault(request_id, []).append(owner)

    def blocks_freed(self, node: str, request_id: str) -> None:
        self._nodes[node].free(request_id, self._clock.now_ns)

    def blocks_refused(self, node: str, request_id: str) -> None:
        self._nodes[node].refused = request_id

    def before_landing(self, landing: Any) -> None:
        self.landed = None
        destination = self._place(landing.destination, landing.destination_offsets, landing.sizes)
        if destination is not None:
            source = self._place(landing.source, landing.source_offsets, landing.sizes)
            self.landed = LandedBlocks(landing, source, destination)

    def blocks_of(self, chain: Any) -> tuple[str, Integers] | None:
        """The engine, and its blocks, at the local end of a chain of work requests."""
        segments = chain.segments
        place = self._place(chain.local, segments.local_offsets, segments.sizes)
        return None if place is None else (place.node, place.touched.blocks)

    def _place(self, region: Any, offsets: Any, sizes: Any) -> Place | None:
        found = self._locate(region, offsets, sizes)
        if found is None:
            return None
        worker, touched = found
        engine = worker.engine
        if engine.name not in self._nodes or not any(w is worker for w in engine.workers):
            return None  # memory of an engine that is not up yet, or of an earlier incarnation
        return Place(engine.name, worker.rank, worker, touched)
