"""Use after free: RDMA touches only blocks that are held for the request it is about.

A stale read, of a source block that the request's own leg does not hold when the bytes land, is
a violation once a forward pass uses what it brought; if it is discarded it only counts. A write
is one at once: into a block whose owner let go of it after the operation was posted, or into a
block that another request has already read there, if it changes it. A write that lands the
bytes that were there already changes nothing, so it makes nothing stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.fabric.memory import Bytes, gather
from sim.model.footprint import Integers
from sim.model.verify import Flags
from sim.oracles.base import Oracle, OracleContext
from sim.oracles.blocks import NULL_BLOCK, NodeBlocks
from sim.oracles.landed import LandedBlocks, Pairs, Place
from sim.oracles.taint import StaleTransfer, Taint, TaintedBlocks
from sim.oracles.words import block_list, seconds
from sim.request_ids import logical_id


@dataclass(frozen=True, eq=False)
class _Suspicion:
    """What has to be compared when the bytes are there: parts of one landing."""

    landed: LandedBlocks
    stale: Pairs
    shared: Integers
    """Destination blocks that another request has read."""
    segments: Integers
    before: Bytes


class UseAfterFree(Oracle):
    """O4. Kinds: ``stale-read``, ``write-after-free``, ``shared-block``."""

    name = "use-after-free"
    summary = "RDMA neither uses nor writes blocks that their request does not hold"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._tainted: dict[tuple[str, int], TaintedBlocks] = {}
        self._read_by_others: dict[str, Integers] = {}
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
            self._tainted[engine.name, worker.rank] = TaintedBlocks(worker.memory.versions)
        self._read_by_others[engine.name] = np.zeros(engine.num_blocks, dtype=np.int64)

    # --------------------------------------------------------------- landings

    def before_landing(self, landing: Any) -> None:
        self._suspicion = None
        landed = self.context.blocks.landed
        if landed is None:
            return
        place = landed.destination
        blocks = self.context.blocks.node(place.node)
        self._tainted[place.node, place.rank].forget_overwritten()
        written = np.unique(place.touched.block_id)
        is_late = _is_late(blocks, written, landing.posted_ns)
        if is_late.any():
            self._report_late(landed, blocks, written[is_late])
        on_time = written[~is_late]
        self._suspicion = _suspect(
            landed, self._stale_pairs(landed, on_time), self._shared(place.node, blocks, on_time)
        )

    def after_landing(self, landing: Any) -> None:
        landed, suspicion = self.context.blocks.landed, self._suspicion
        if landed is None:
            return
        taints: dict[int, Taint] = {}
        unchanged = np.empty(0, dtype=np.int64)
        if suspicion is not None:
            changed = _changed_segments(suspicion)
            self._report_shared(suspicion, changed)
            taints = self._taints(suspicion, changed)
            stale = suspicion.stale
            unchanged = stale.destination[~np.isin(stale.segment, changed)]
        place = landed.destination
        self._tainted[place.node, place.rank].landed(
            place.touched.block_id, place.touched.layer_index, taints, unchanged
        )

    def _stale_pairs(self, landed: LandedBlocks, on_time: Integers) -> Pairs:
        """The pairs whose source block no leg of the destination's request holds."""
        pairs, source, destination = landed.pairs, landed.source, landed.destination
        stale = np.isin(pairs.destination, on_time)
        if source is None or source.node == destination.node:
            stale[:] = False
            return pairs.only(stale)
        there = self.context.blocks.node(source.node)
        here = self.context.blocks.node(destination.node)
        owners = here.owner[pairs.destination]
        for owner in np.unique(owners[stale]).tolist():
            own = there.held_for(logical_id(here.requests[owner]))
            stale &= ~((owners == owner) & np.isin(pairs.source, own))
        if stale.any():  # perhaps it is for a request that found the block in the prefix cache
            for request_id in here.holding():
                own = there.held_for(logical_id(request_id))
                is_for_it = np.isin(pairs.destination, here.held_by(request_id))
                stale &= ~(is_for_it & np.isin(pairs.source, own))
        return pairs.only(stale)

    def _shared(self, node: str, blocks: NodeBlocks, on_time: Integers) -> Integers:
        read = self._read_by_others[node][on_time] == blocks.generation[on_time]
        shared: Integers = on_time[read]
        return shared

    # ---------------------------------------------------------------- verdicts

    def _report_late(self, landed: LandedBlocks, blocks: NodeBlocks, late: Integers) -> None:
        landing, place = landed.landing, landed.destination
        block = int(late[0])
        self.report(
            f"transfer {landing.transfer_uid}, posted at {seconds(landing.posted_ns)}, wrote to "
            f"{block_list(late.tolist())} of {place.node} rank {place.rank}, which did not stay "
            f"with the request that it was posted for: block {block} is {blocks.state_of(block)}",
            node=place.node,
            request_id=blocks.owner_of(block),
            kind="write-after-free",
            rank=place.rank,
            transfer=landing.transfer_uid,
            posted_ns=landing.posted_ns,
            block_ids=late.tolist(),
        )

    def _report_shared(self, suspicion: _Suspicion, changed: Integers) -> None:
        landing, place = suspicion.landed.landing, suspicion.landed.destination
        touched = place.touched
        written = touched.block_id[np.isin(touched.range_index, changed)]
        is_changed = np.isin(suspicion.shared, written)
        shared = suspicion.shared[is_changed]
        self._equal_rewrites += int((~is_changed).sum())
        if not len(shared):
            return
        blocks = self.context.blocks.node(place.node)
        block = int(shared[0])
        self.report(
            f"transfer {landing.transfer_uid} changed {block_list(shared.tolist())} of "
            f"{place.node} rank {place.rank}, which other requests had read from the prefix "
            f"cache: block {block} is {blocks.state_of(block)}",
            node=place.node,
            request_id=blocks.owner_of(block),
            kind="shared-block",
            rank=place.rank,
            transfer=landing.transfer_uid,
            block_ids=shared.tolist(),
        )

    def _taints(self, suspicion: _Suspicion, changed: Integers) -> dict[int, Taint]:
        """What the landing made stale, by destination block."""
        stale, landed = suspicion.stale, suspicion.landed
        if not len(stale.source) or landed.source is None:
            return {}
        transfer = StaleTransfer(
            self._story(landed, landed.source, stale),
            landed.source.node,
            landed.landing.transfer_uid,
            self.kernel.now_ns,
        )
        self._stale.append(transfer)
        is_new = np.isin(stale.segment, changed)
        rows = zip(stale.destination[is_new].tolist(), stale.source[is_new].tolist(), strict=True)
        return {destination: Taint(transfer, source) for destination, source in rows}

    def _story(self, landed: LandedBlocks, source: Place, stale: Pairs) -> str:
        """Who had the first of the stale source blocks, told while it is still so."""
        there = self.context.blocks.node(source.node)
        here = self.context.blocks.node(landed.destination.node)
        block = int(stale.source[0])
        owner = here.owner_of(int(stale.destination[0])) or ""
        let_go = [
            f"{source.node} had let go of the blocks of {leg} at {seconds(time_ns)}"
            for leg, time_ns in there.freed_ns.items()
            if logical_id(leg) == logical_id(owner)
        ]
        state = f"block {block} of {source.node} was {there.state_of(block)}"
        return "; ".join([*let_go, state])

    # ------------------------------------------------------------------ reads

    def blocks_read(self, node: str, rank: int, request_id: str, group: int, blocks: Any) -> None:
        history = self.context.blocks.node(node)
        by_others = blocks[history.owner[blocks] != history.number_of(request_id)]
        self._read_by_others[node][by_others] = history.generation[by_others]
        used = self._tainted[node, rank].take(blocks)
        if used:
            self._report_used(node, rank, request_id, group, used)

    def _report_used(
        self, node: str, rank: int, request_id: str, group: int, used: dict[int, Taint]
    ) -> None:
        block, taint = next(iter(used.items()))
        transfer = taint.transfer
        self.report(
            f"a forward pass of {request_id} on {node} rank {rank} used "
            f"{block_list(list(used))}, read from blocks that {transfer.node} did not hold for "
            f"it: block {block} was copied from block {taint.source_block} of {transfer.node} by "
            f"transfer {transfer.transfer_uid} at {seconds(transfer.landed_ns)}; {transfer.story}",
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


def _suspect(landed: LandedBlocks, stale: Pairs, shared: Integers) -> _Suspicion | None:
    """Keep the bytes that are about to be overwritten, where they may matter."""
    touched = landed.destination.touched
    segments = np.union1d(stale.segment, touched.range_index[np.isin(touched.block_id, shared)])
    if not len(segments):
        return None
    return _Suspicion(landed, stale, shared, segments, _bytes_at(landed, segments))


def _bytes_at(landed: LandedBlocks, segments: Integers) -> Bytes:
    landing = landed.landing
    return gather(
        landing.destination.view, landing.destination_offsets[segments], landing.sizes[segments]
    )


def _changed_segments(suspicion: _Suspicion) -> Integers:
    """The suspicious segments whose bytes are others now than before."""
    differs = suspicion.before != _bytes_at(suspicion.landed, suspicion.segments)
    sizes = suspicion.landed.landing.sizes[suspicion.segments]
    starts = np.cumsum(sizes) - sizes
    changed: Flags = np.logical_or.reduceat(differs, starts)
    return suspicion.segments[changed]
