"""From the lists of a call to work requests: conversion, checks, sorting, merging, chains."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sim.fabric.memory import Offsets
from sim.fabric.work import Segments

MAX_REQUEST_BYTES = 2**32 - 1


def to_column(values: Sequence[int]) -> Offsets:
    """A list of unsigned integers as an array; TypeError for anything else, like pybind11."""
    try:
        column = np.frombuffer(array("q", values), np.int64)  # takes nothing but integers
    except (TypeError, OverflowError):
        column = np.array([-1])
    if len(column) and int(column.min()) < 0:
        raise TypeError(
            "incompatible function arguments: offsets and sizes must be lists of "
            f"non-negative integers, got {values!r:.80}"
        )
    return column


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one call, as columns: offsets into the two registered regions, and sizes."""

    local_offsets: Offsets
    remote_offsets: Offsets
    sizes: Offsets

    def mismatch(self) -> str | None:
        """Why the lists do not belong together, or None."""
        if not len(self.local_offsets) == len(self.remote_offsets) == len(self.sizes):
            return "lengths of local offsets, remote offsets or sizes mismatch"
        return None

    def slice(self, begin: int, end: int) -> Items:
        """The items from ``begin`` up to but not including ``end``."""
        return Items(
            self.local_offsets[begin:end], self.remote_offsets[begin:end], self.sizes[begin:end]
        )

    def not_empty(self) -> Items:
        """Without the items of no bytes."""
        chosen = self.sizes > 0
        if bool(chosen.all()):
            return self
        return Items(self.local_offsets[chosen], self.remote_offsets[chosen], self.sizes[chosen])

    def rejection(self, local_size: int, remote_size: int) -> str | None:
        """Why the library refuses items, of which there are some, or None."""
        if int(self.sizes.max()) > MAX_REQUEST_BYTES:
            size = int(self.sizes.max())
            return f"single request size {size} exceeds UINT32_MAX; split it before submitting"
        if (
            int((self.local_offsets + self.sizes).max()) > local_size
            or int((self.remote_offsets + self.sizes).max()) > remote_size
        ):
            return "length out of range"
        return None

    def unmerged(self) -> Segments:
        """A work request for each item, in the order given."""
        firsts = np.arange(len(self.sizes))
        return Segments(self.local_offsets, self.remote_offsets, self.sizes, firsts)

    def merged(self, max_segments: int) -> Segments:
        """Work requests in order of remote offset, neighbours merged.

        Items adjacent on both sides become one segment; segments adjacent at the remote side
        share a work request, up to ``max_segments`` of them.
        """
        local, remote, sizes = self._sorted()
        if len(sizes) < 2:
            return Segments(local, remote, sizes, np.zeros(len(sizes), np.int64))
        remote_adjacent = remote[1:] == remote[:-1] + sizes[:-1]
        local_adjacent = local[1:] == local[:-1] + sizes[:-1]
        starts = np.flatnonzero(np.append(True, ~(remote_adjacent & local_adjacent)))
        continues = np.append(False, remote_adjacent)[starts]
        ordinal = np.arange(len(starts))
        run_start = np.maximum.accumulate(np.where(continues, 0, ordinal))
        firsts = np.flatnonzero((ordinal - run_start) % max_segments == 0)
        return Segments(local[starts], remote[starts], np.add.reduceat(sizes, starts), firsts)

    def _sorted(self) -> tuple[Offsets, Offsets, Offsets]:
        if len(self.sizes) < 2 or bool((self.remote_offsets[1:] >= self.remote_offsets[:-1]).all()):
            return self.local_offsets, self.remote_offsets, self.sizes
        order = np.argsort(self.remote_offsets, kind="stable")
        return self.local_offsets[order], self.remote_offsets[order], self.sizes[order]


def too_long(segments: Segments, max_message_bytes: int) -> str | None:
    """Why the NIC could not take one of the merged work requests, or None."""
    lengths = np.add.reduceat(segments.sizes, segments.first_segments)
    worst = int(lengths.argmax())
    if int(lengths[worst]) <= max_message_bytes:
        return None
    return (
        f"merged RDMA WR {worst} length {int(lengths[worst])} exceeds local max_msg_sz "
        f"{max_message_bytes}; enable RDMA transfer chunking or reduce batch size"
    )


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Work requests from ``begin`` up to ``end``, for queue pair number ``queue_pair``."""

    queue_pair: int
    begin: int
    end: int
    signaled: bool
    credit: int


def chains(
    work_requests: int, queue_pairs: int, first: int, post_batch_size: int, depth: int
) -> Iterator[ChainPlan]:
    """How a call's work requests are spread: equal chains, round robin from queue pair ``first``.

    Only the last chain of a queue pair is signaled, and any that makes the unsignaled work
    requests before it add up to the queue's whole depth; its credit stands for all of them.
    """
    size = post_batch_size if post_batch_size > 0 else -(-work_requests // queue_pairs)
    size = min(size, depth)
    total = -(-work_requests // size)
    unsignaled = [0] * queue_pairs
    for number in range(total):
        begin, end = number * size, min((number + 1) * size, work_requests)
        queue_pair = (first + number) % queue_pairs
        unsignaled[queue_pair] += end - begin
        credit = unsignaled[queue_pair]
        signaled = number + queue_pairs >= total or credit >= depth
        if signaled:
            unsignaled[queue_pair] = 0
        yield ChainPlan(queue_pair, begin, end, signaled, credit if signaled else 0)
