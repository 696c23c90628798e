"""Use after free: RDMA touches only blocks that are held for the request it is about.

A stale read, of a source block that the request's own leg does not hold when the bytes land, is
a violation once a forward pass uses what it brought; if it is discarded it only counts. A request
that a router in error sent with another one's parameters reads that one's blocks: whether they may
serve it is for the oracle of wrong bytes to say, as a prompt of the same tokens may use them. A
write is a violation at once: into a block whose owner let go of it after the operation was posted,
into one that was taken from the request whose blocks the bytes come from, or into a shared block
that somebody has already read, if it changes it. A write that lands the bytes that were there
already changes nothing, so it makes nothing stale.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.fabric.memory import Bytes, gather
from sim.fabric.work import Operation
from sim.model.footprint import Footprint, Integers
from sim.model.verify import Flags
from sim.oracles.base import Oracle, OracleContext
from sim.oracles.blocks import NULL_BLOCK, NodeBlocks
from sim.oracles.landed import LandedBlocks, Pairs
from sim.oracles.taint import StaleTransfer, Taint, TaintedBlocks
from sim.oracles.words import block_list, seconds
from sim.request_ids import logical_id

_NOTHING = np.empty(0, dtype=np.int64)


class _Rank:
    """What is kept of one rank of an engine."""

    def __init__(self, memory: Any, num_blocks: int) -> None:
        self.footprint: Footprint = memory.caches.footprint()
        self.bytes: Bytes = memory.caches.backing.numpy().view(np.uint8)
        self.tainted = TaintedBlocks(memory.versions)
        number_of = {name: number for number, name in enumerate(self.footprint.layers)}
        self.layers_of = [
            frozenset(number_of[name] for name in group.layer_names if name in number_of)
            for group in memory.caches.config.kv_cache_groups
        ]
        """By cache group, its layers in the footprint."""
        self.read: Integers = np.zeros(num_blocks, dtype=np.int64)
        """By block, the generation in which a forward pass last read it."""


class _Suspicion:
    """What has to be compared when the bytes are there: some blocks of one landing.

    ``stale`` are pairs with a source block that is not held, ``shared`` destination blocks that
    others rely on.
    """

    def __init__(self, rank: _Rank, landed: LandedBlocks, stale: Pairs, shared: Integers) -> None:
        self.landed = landed
        self.stale = stale
        self.shared = shared
        touched = landed.destination.touched
        chosen = np.isin(touched.block_id, np.union1d(stale.destination, shared))
        layers, blocks = touched.layer_index[chosen], touched.block_id[chosen]
        index, self._offsets, self._sizes = rank.footprint.parts(layers, blocks)
        self._blocks = blocks[index]
        self._bytes = rank.bytes
        self._before = self._gather()

    def changed_blocks(self) -> Integers:
        """The suspicious blocks whose bytes are others now than before the landing."""
        if not len(self._sizes):
            return self._blocks
        starts = np.cumsum(self._sizes) - self._sizes
        changed = np.logical_or.reduceat(self._before != self._gather(), starts)
        return np.unique(self._blocks[changed])

    def _gather(self) -> Bytes:
        return gather(self._bytes, self._offsets, self._sizes)


class UseAfterFree(Oracle):
    """O4. Kinds: ``stale-read``, ``write-after-free``, ``shared-block``."""

    name = "use-after-free"
    summary = "RDMA neither uses nor writes blocks that their request does not hold"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._ranks: dict[tuple[str, int], _Rank] = {}
        self._stale: list[StaleTransfer] = []
        self._equal_rewrites = 0
        self._suspicion: _Suspicion | None = None

    def counts(self) -> dict[str, int]:
        return {
            "stale_reads": len(self._stale),
            "discarded_stale_reads": sum(not transfer.used for transfer in self._stale),
            "shared_blocks_rewritten_equally": self._equal_rewrites,
        }

    def engine_started(self, engine: Any) -> None:
        for worker in engine.workers:
            self._ranks[engine.name, worker.rank] = _Rank(worker.memory, engine.num_blocks)

    # --------------------------------------------------------------- landings

    def before_landing(self, landing: Any) -> None:
        self._suspicion = None
        landed = self.context.blocks.landed
        if landed is None:
            return
        place = landed.destination
        rank = self._ranks[place.node, place.rank]
        rank.tainted.forget_overwritten()
        blocks = self.context.blocks.node(place.node)
        written = place.touched.blocks
        is_late = _is_late(blocks, written, landing.posted_ns)
        if is_late.any():
            self._report_late(landed, blocks, written[is_late])
        on_time = written[~is_late]
        stale = self._stale_pairs(landed, on_time)
        if landing.operation is Operation.WRITE and len(stale.source):
            self._report_strayed(landed, blocks, stale)
        shared = _in_use_by_others(blocks, rank, on_time)
        if len(stale.source) or len(shared):
            self._suspicion = _Suspicion(rank, landed, stale, shared)

    def after_landing(self, landing: Any) -> None:
        landed, suspicion = self.context.blocks.landed, self._suspicion
        if landed is None:
            return
        taints: dict[int, Taint] = {}
        unchanged = _NOTHING
        if suspicion is not None:
            changed = suspicion.changed_blocks()
            is_changed = np.isin(suspicion.stale.destination, changed)
            self._report_shared(suspicion, changed)
            taints = self._taints(suspicion, is_changed)
            unchanged = suspicion.stale.destination[~is_changed]
        place = landed.destination
        self._ranks[place.node, place.rank].tainted.landed(
            place.touched.block_id, place.touched.layer_index, taints, unchanged
        )

    def _stale_pairs(self, landed: LandedBlocks, on_time: Integers) -> Pairs:
        """The pairs whose source block no leg of the destination's request holds."""
        pairs, source, destination = landed.pairs, landed.source, landed.destination
        if source is None:
            return pairs
        there = self.context.blocks.node(source.node)
        here = self.context.blocks.node(destination.node)
        stale = here.flags(on_time)[pairs.destination]
        owners = here.owner[pairs.destination]
        for owner in np.unique(owners[stale]).tolist():
            own = there.flags(there.held_for(logical_id(here.requests[owner])))
            stale &= ~((owners == owner) & own[pairs.source])
        for request_id in here.holding():  # it may be for one that has the block by a prefix hit
            if not stale.any():
                break
            own = there.flags(there.held_for(logical_id(request_id)))
            theirs = here.flags(here.held_by(request_id))
            stale &= ~(theirs[pairs.destination] & own[pairs.source])
        return pairs.only(stale)

    # ---------------------------------------------------------------- verdicts

    def _report_late(self, landed: LandedBlocks, blocks: NodeBlocks, late: Integers) -> None:
        fate = "which did not stay with the request that it was posted for"
        self._report_write(landed, blocks, late, "wrote to", fate)

    def _report_strayed(self, landed: LandedBlocks, blocks: NodeBlocks, stale: Pairs) -> None:
        """The one who writes was told of these blocks when they were another request's."""
        assert landed.source is not None
        there = self.context.blocks.node(landed.source.node)
        former = blocks.former[stale.destination]
        for number in np.unique(former[former >= 0]).tolist():
            request_id = blocks.requests[number]
            own = there.flags(there.held_for(logical_id(request_id)))
            strayed = np.unique(stale.destination[(former == number) & own[stale.source]])
            if not len(strayed):
                continue
            wrote = f"wrote what {landed.source.node} has for {logical_id(request_id)} to"
            fate = f"which {request_id} does not hold any more"
            self._report_write(landed, blocks, strayed, wrote, fate)

    def _report_write(
        self, landed: LandedBlocks, blocks: NodeBlocks, ids: Integers, wrote: str, fate: str
    ) -> None:
        landing, place, block = landed.landing, landed.destination, int(ids[0])
        self.report(
            f"transfer {landing.transfer_uid}, posted at {seconds(landing.posted_ns)}, {wrote} "
            f"{block_list(ids.tolist())} of {place.node} rank {place.rank}, {fate}: "
            f"block {block} is {blocks.state_of(block)}",
            node=place.node,
            request_id=blocks.owner_of(block),
            kind="write-after-free",
            rank=place.rank,
            transfer=landing.transfer_uid,
            posted_ns=landing.posted_ns,
            block_ids=ids.tolist(),
        )

    def _report_shared(self, suspicion: _Suspicion, changed: Integers) -> None:
        landing, place = suspicion.landed.landing, suspicion.landed.destination
        is_changed = np.isin(suspicion.shared, changed)
        shared = suspicion.shared[is_changed]
        self._equal_rewrites += int((~is_changed).sum())
        if not len(shared):
            return
        blocks = self.context.blocks.node(place.node)
        block = int(shared[0])
        self.report(
            f"transfer {landing.transfer_uid} changed {block_list(shared.tolist())} of "
            f"{place.node} rank {place.rank}, which had been read and were shared: "
            f"block {block} is {blocks.state_of(block)}",
            node=place.node,
            request_id=blocks.owner_of(block),
            kind="shared-block",
            rank=place.rank,
            transfer=landing.transfer_uid,
            block_ids=shared.tolist(),
        )

    def _taints(self, suspicion: _Suspicion, is_changed: Flags) -> dict[int, Taint]:
        """What the landing made stale, by destination block."""
        stale, landed = suspicion.stale, suspicion.landed
        if not len(stale.source) or landed.source is None:
            return {}
        news = stale.only(is_changed)
        transfer = StaleTransfer(
            self._states(landed.source.node, news),
            landed.source.node,
            landed.landing.transfer_uid,
            self.kernel.now_ns,
        )
        self._stale.append(transfer)
        rows = zip(news.destination.tolist(), news.source.tolist(), strict=True)
        return {destination: Taint(transfer, source) for destination, source in rows}

    def _states(self, node: str, news: Pairs) -> dict[int, str]:
        """Who has each of the source blocks, told while it is still so."""
        blocks = self.context.blocks.node(node)
        sources = dict.fromkeys(news.source.tolist())
        words: dict[tuple[int, ...], str] = {}  # most blocks have the same story
        states = {}
        for block in sources:
            key = tuple(
                int(of_block[block])
                for of_block in (blocks.owner, blocks.since_ns, blocks.let_go_ns, blocks.holders)
            )
            if key not in words:
                words[key] = blocks.state_of(block)
            states[block] = words[key]
        return states

    # ------------------------------------------------------------------ reads

    def blocks_read(self, node: str, rank: int, request_id: str, group: int, blocks: Any) -> None:
        of_rank = self._ranks[node, rank]
        of_rank.read[blocks] = self.context.blocks.node(node).generation[blocks]
        used = of_rank.tainted.take(blocks, of_rank.layers_of[group])
        if used:
            self._report_used(node, rank, request_id, group, used)

    def _report_used(
        self, node: str, rank: int, request_id: str, group: int, used: dict[int, Taint]
    ) -> None:
        block, taint = next(iter(used.items()))
        transfer, source = taint.transfer, taint.source_block
        let_go = self.context.blocks.node(transfer.node).let_go(logical_id(request_id))
        told = [f"{transfer.node} let go of {leg} at {seconds(at_ns)}" for leg, at_ns in let_go]
        self.report(
            f"a forward pass of {request_id} on {node} rank {rank} used "
            f"{block_list(list(used))}, read from blocks that {transfer.node} did not hold for "
            f"it: block {block} was copied from block {source} of {transfer.node} by transfer "
            f"{transfer.transfer_uid} at {seconds(transfer.landed_ns)}, when block {source} was "
            + "; ".join([transfer.source_states[source], *told]),
            node=node,
            request_id=request_id,
            kind="stale-read",
            rank=rank,
            group=group,
            block_ids=list(used),
            source_node=transfer.node,
            source_block_ids=[taint.source_block for taint in used.values()],
            transfer=transfer.transfer_uid,
        )


def _is_late(blocks: NodeBlocks, ids: Integers, posted_ns: int) -> Flags:
    """Which blocks nobody holds, or have lost the owner they had when the write was posted."""
    flags: Flags = (ids != NULL_BLOCK) & (
        (blocks.holders[ids] == 0)
        | (blocks.since_ns[ids] > posted_ns)
        | (blocks.let_go_ns[ids] > posted_ns)
    )
    return flags


def _in_use_by_others(blocks: NodeBlocks, rank: _Rank, ids: Integers) -> Integers:
    """Blocks with content that somebody relies on besides the request that would load them."""
    is_shared = (blocks.holders[ids] > 1) | (blocks.let_go_ns[ids] >= 0)
    in_use: Integers = ids[is_shared & (rank.read[ids] == blocks.generation[ids])]
    return in_use
