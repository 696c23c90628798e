"""One landing in terms of blocks: which source block went into which destination block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sim.model.footprint import Integers, Touched, distinct
from sim.model.verify import Flags


@dataclass(frozen=True, eq=False)
class Place:
    """One end of a landing: a rank of an engine, and what the segments touch there."""

    node: str
    rank: int
    worker: Any
    touched: Touched


@dataclass(frozen=True, eq=False)
class Pairs:
    """Parallel arrays: segment ``segment`` copied (part of) one block into another."""

    segment: Integers
    source: Integers
    destination: Integers

    def only(self, chosen: Flags) -> Pairs:
        """The pairs that are flagged."""
        return Pairs(self.segment[chosen], self.source[chosen], self.destination[chosen])


@dataclass(frozen=True, eq=False)
class LandedBlocks:
    """A landing (sim.fabric) whose destination is a cache in use.

    ``source`` is None when the bytes do not come from a cache.
    """

    landing: Any
    source: Place | None
    destination: Place

    @cached_property
    def pairs(self) -> Pairs:
        """Without null blocks, which hold nothing."""
        nothing = np.empty(0, dtype=np.int64)
        if self.source is None:
            return Pairs(nothing, nothing, nothing)
        pairs = pair_blocks(self.source.touched, self.destination.touched)
        return pairs.only((pairs.source != 0) & (pairs.destination != 0))


def pair_blocks(source: Touched, destination: Touched) -> Pairs:
    """Pair the blocks of each segment.

    A segment that touches as many blocks here as there connects them in order. Otherwise it
    may cut blocks anywhere, and each of its source blocks is taken to reach each destination.
    """
    from_segment, from_block = _blocks_by_segment(source)
    to_segment, to_block = _blocks_by_segment(destination)
    if np.array_equal(from_segment, to_segment):
        return Pairs(to_segment, from_block, to_block)
    first = np.searchsorted(from_segment, to_segment, side="left")
    count = np.searchsorted(from_segment, to_segment, side="right") - first
    own_first = np.searchsorted(to_segment, to_segment, side="left")
    own_count = np.searchsorted(to_segment, to_segment, side="right") - own_first
    in_order = count == own_count
    place = np.arange(len(to_segment)) - own_first
    first = np.where(in_order, first + place, first)
    count = np.where(in_order, 1, count)
    row = np.repeat(np.arange(len(to_segment)), count)
    steps = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return Pairs(to_segment[row], from_block[first[row] + steps], to_block[row])


def _blocks_by_segment(touched: Touched) -> tuple[Integers, Integers]:
    """The distinct blocks of each segment, whatever layers they were touched in."""
    width = int(touched.block_id.max(initial=0)) + 1
    keys = distinct(touched.range_index * width + touched.block_id)
    return keys // width, keys % width
