"""Wrong bytes: no forward pass reads a cache entry that its request's tokens do not define.

The forward pass compares; here the finding gets its story: which transfer brought the bytes,
from which block, and who had that block at the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sim.model.footprint import Integers
from sim.model.verify import Flags
from sim.oracles.base import Oracle, OracleContext, RunFacts
from sim.oracles.blocks import NodeBlocks
from sim.oracles.landed import LandedBlocks, Pairs, Place
from sim.oracles.words import block_list, seconds
from sim.probes import OF_ANOTHER_CONTINUATION, WrongBytes
from sim.request_ids import logical_id


@dataclass(frozen=True, slots=True)
class _Arrival:
    time_ns: int
    node: str
    transfer_uid: int
    owners: list[str]
    """Requests of the source node, by number."""


class _Origins:
    """Of each block of a rank: the last landing in it, the source block and its owner."""

    def __init__(self, num_blocks: int) -> None:
        self.arrival: Integers = np.full(num_blocks, -1, dtype=np.int64)
        self.source: Integers = np.full(num_blocks, -1, dtype=np.int64)
        self.owner: Integers = np.full(num_blocks, -1, dtype=np.int64)
        self.was_held = np.zeros(num_blocks, dtype=bool)
        self.was_own = np.zeros(num_blocks, dtype=bool)
        """Whether a leg of the request that it was for held the source block itself."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """Everything wrong that was read for one request on one node, listed or not."""

    evidence: dict[str, Any] = field(default_factory=dict)
    """What a reader sees, filled at the end."""
    seen: dict[str, dict[Any, None]] = field(default_factory=dict)

    def add(self, **values: Sequence[Any]) -> None:
        for key, items in values.items():
            self.seen.setdefault(key, {}).update(dict.fromkeys(items))

    def close(self) -> None:
        self.evidence.update({key: list(items) for key, items in self.seen.items()})
        for key in ("block_ids", "source_block_ids", "copied", "transfers", "overwritten"):
            self.evidence.get(key, []).sort()
        for key in ("copied", "overwritten"):
            self.evidence[key] = [list(items) for items in self.evidence.get(key, ())]
        tokens = self.evidence["tokens"]
        self.evidence["tokens"] = [min(tokens), max(tokens)]


class WrongBytesRead(Oracle):
    """O1. The first violation of a kind about a request carries the ``extent`` of all of them."""

    name = "wrong-bytes"
    summary = "No forward pass reads bytes other than those its request's tokens define"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._arrivals: list[_Arrival] = []
        self._origins: dict[tuple[str, int], _Origins] = {}
        self._extents: dict[tuple[str, str, str | None], _Extent] = {}

    def finish(self, run: RunFacts) -> None:
        for extent in self._extents.values():
            extent.close()

    def engine_started(self, engine: Any) -> None:
        for rank in range(engine.options.tp_size):
            self._origins[engine.name, rank] = _Origins(engine.num_blocks)

    def after_landing(self, landing: Any) -> None:
        landed = self.context.blocks.landed
        if landed is not None and landed.source is not None:
            self._remember(landed, landed.source)

    def _remember(self, landed: LandedBlocks, source: Place) -> None:
        blocks = self.context.blocks.node(source.node)
        origins = self._origins[landed.destination.node, landed.destination.rank]
        pairs = landed.pairs
        origins.arrival[pairs.destination] = len(self._arrivals)
        origins.source[pairs.destination] = pairs.source
        origins.owner[pairs.destination] = blocks.owner[pairs.source]
        origins.was_held[pairs.destination] = blocks.holders[pairs.source] > 0
        there = self.context.blocks.node(landed.destination.node)
        origins.was_own[pairs.destination] = _was_own(pairs, blocks, there)
        uid = landed.landing.transfer_uid
        self._arrivals.append(_Arrival(self.kernel.now_ns, source.node, uid, blocks.requests))

    def wrong_bytes(self, finding: WrongBytes) -> None:
        finding = replace(finding, kind=self._kind(finding))
        chain = [*finding.history, *self._origin(finding)]
        what = (
            f"layer {finding.layer}, group {finding.group}, {block_list(finding.block_ids)}, "
            f"tokens {finding.first_token}-{finding.last_token}; found {finding.found}"
        )
        self.report(
            "; ".join(
                [
                    f"{finding.node} rank {finding.rank} read wrong bytes for "
                    f"{finding.request_id}: {what}",
                    *chain,
                ]
            ),
            node=finding.node,
            request_id=finding.request_id,
            rank=finding.rank,
            layer=finding.layer,
            group=finding.group,
            block_ids=list(finding.block_ids),
            tokens=[finding.first_token, finding.last_token],
            owner=finding.owner,
            found=finding.found,
            chain=chain,
            **({"kind": finding.kind} if finding.kind else {}),
            **self._extent(finding),
        )

    def _kind(self, finding: WrongBytes) -> str | None:
        """The finding's, unless a transfer from blocks of another request may be to blame."""
        block, origins = finding.block_ids[0], self._origins[finding.node, finding.rank]
        if finding.kind != OF_ANOTHER_CONTINUATION or origins.arrival[block] < 0:
            return finding.kind
        arrived_ns = self._arrivals[origins.arrival[block]].time_ns
        was_taken_since = self.context.blocks.node(finding.node).since_ns[block] > arrived_ns
        return finding.kind if was_taken_since or origins.was_own[block] else None

    def _extent(self, finding: WrongBytes) -> dict[str, Any]:
        """Count the finding in; the evidence to show, if it is the first about its request."""
        place = (finding.node, finding.request_id, finding.kind)
        is_first = place not in self._extents
        extent = self._extents.setdefault(place, _Extent())
        extent.add(
            ranks=[finding.rank],
            layers=[finding.layer],
            block_ids=finding.block_ids,
            tokens=[finding.first_token, finding.last_token],
            owners=[finding.owner] if finding.owner else [],
            found=[] if finding.owner else [finding.found.partition(" (")[0]],
        )
        origins = self._origins[finding.node, finding.rank]
        arrived = [block for block in finding.block_ids if origins.arrival[block] >= 0]
        arrivals = [self._arrivals[origins.arrival[block]] for block in arrived]
        extent.add(
            source_nodes=[arrival.node for arrival in arrivals],
            source_block_ids=[int(origins.source[block]) for block in arrived],
            copied=[(block, int(origins.source[block])) for block in arrived],
            transfers=[arrival.transfer_uid for arrival in arrivals],
            overwritten=_overwritten(finding, arrivals),
        )
        return {"extent": extent.evidence} if is_first else {}

    def _origin(self, finding: WrongBytes) -> list[str]:
        """Where the bytes in the finding's first block came from, if from another engine."""
        block = finding.block_ids[0]
        origins = self._origins[finding.node, finding.rank]
        if origins.arrival[block] < 0:
            return []
        arrival = self._arrivals[origins.arrival[block]]
        source = int(origins.source[block])
        when = seconds(arrival.time_ns)
        chain = [
            f"the last transfer into it, {arrival.transfer_uid}, copied block {source} of "
            f"{arrival.node} at {when}"
        ]
        if origins.owner[block] < 0:
            return [*chain, f"no request had ever held block {source} of {arrival.node} then"]
        owner = arrival.owners[origins.owner[block]]
        held = "was held by" if origins.was_held[block] else "was free, and before that held by"
        chain.append(f"block {source} of {arrival.node} {held} {owner} then")
        return chain + self._let_go(arrival.node, logical_id(finding.request_id))

    def _let_go(self, node: str, logical: str) -> list[str]:
        return [
            f"{node} let go of the blocks of {leg} at {seconds(time_ns)}"
            for leg, time_ns in self.context.blocks.node(node).let_go(logical)
        ]


def _was_own(pairs: Pairs, source: NodeBlocks, destination: NodeBlocks) -> Flags:
    """By pair, whether the destination block's owner has legs that hold the source block, and not
    only those of another request that it was told of as its own."""
    was_own = np.zeros(len(pairs.source), dtype=bool)
    owners = destination.owner[pairs.destination]
    for owner in np.unique(owners[owners >= 0]).tolist():
        held = source.held_by_legs(logical_id(destination.requests[owner]))
        was_own |= (owners == owner) & source.flags(held)[pairs.source]
    return was_own


def _overwritten(finding: WrongBytes, arrivals: Sequence[_Arrival]) -> list[tuple[int, int, str]]:
    """When its first block was written to after a transfer, the block, and by whom."""
    written_ns = finding.written_ns
    if not arrivals or written_ns is None or written_ns <= arrivals[0].time_ns:
        return []
    return [(written_ns, finding.block_ids[0], finding.writer)]
