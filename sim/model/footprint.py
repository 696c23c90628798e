"""Which blocks of which layers a range of backing bytes touches.

It works from the shapes and strides of the layer views alone, so it holds for every layout: a block
of a layer is one run of bytes, or several when the layout tears the heads of a block apart. Cache
groups overlay each other, so a byte may lie in layers of several groups: which of them owns the
block at some time is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_MAX_PAIRS = 1 << 20
"""Pairs of range and run that are looked at together; bounds the memory for long lists."""


@dataclass(frozen=True)
class LayerView:
    """Where a layer lies: a view [blocks, heads, states, content bytes] of the backing."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""


@dataclass(frozen=True, eq=False)
class Touched:
    """Parallel arrays, one element per touched block of a layer, sorted, without repetitions."""

    range_index: Integers
    layer_index: Integers
    """Index into `Footprint.layers`."""
    block_id: Integers

    @cached_property
    def blocks(self) -> Integers:
        """The blocks in order, each once, whatever ranges and layers touch them."""
        return distinct(self.block_id)


def distinct(values: Integers) -> Integers:
    """``values`` in order, each once. They mostly are so already, which takes less to see."""
    return values if (values[1:] > values[:-1]).all() else np.unique(values)


class Footprint:
    """Maps byte ranges of one backing buffer to the cache blocks in it."""

    def __init__(self, views: Mapping[str, LayerView]) -> None:
        self.layers = tuple(views)
        runs = [
            (index, view.offset + start, view.strides[0], length, view.shape[0])
            for index, view in enumerate(views.values())
            for start, length in _runs_of_a_block(view)
        ]
        table = np.array(runs, dtype=np.int64).reshape(-1, 5)
        self._layer, self._start, self._stride, self._length, self._num_blocks = table.T
        self._is_torn = len(runs) > len(self.layers)
        """Whether blocks of some layer consist of several runs."""

    def touched(self, offsets: npt.ArrayLike, sizes: npt.ArrayLike) -> Touched:
        """The blocks that have at least one byte in one of the ranges ``[offset, offset + size)``.

        Bytes between blocks, such as padding, belong to none.
        """
        starts = np.asarray(offsets, dtype=np.int64).reshape(-1)
        lengths = np.asarray(sizes, dtype=np.int64).reshape(-1)
        if starts.shape != lengths.shape:
            starts, lengths = np.broadcast_arrays(starts, lengths)
        step = max(1, _MAX_PAIRS // max(1, len(self._layer)))
        parts = [
            self._touched_part(starts[i : i + step], lengths[i : i + step], i)
            for i in range(0, max(1, len(starts)), step)
        ]
        if len(parts) == 1:
            return Touched(*parts[0])
        return Touched(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def parts(
        self, layer_index: Integers, block_id: Integers
    ) -> tuple[Integers, Integers, Integers]:
        """The bytes of blocks of layers, given as parallel arrays.

        Returns:
            For each contiguous run of bytes, the index of its block in the arguments (ascending),
            its offset, and its size.
        """
        index, run = np.nonzero(layer_index[:, None] == self._layer)
        return index, self._start[run] + block_id[index] * self._stride[run], self._length[run]

    def _touched_part(
        self, starts: Integers, lengths: Integers, first_index: int
    ) -> tuple[Integers, ...]:
        begin, end = starts[:, None], (starts + lengths)[:, None]
        # Block b touches if its run at start + b * stride ends after begin and begins before end.
        first = np.maximum((begin - self._start - self._length) // self._stride + 1, 0)
        last = np.minimum((end - 1 - self._start) // self._stride, self._num_blocks - 1)
        counts = np.where(end > begin, np.maximum(last - first + 1, 0), 0)
        range_index, run = np.nonzero(counts)
        first, counts = first[range_index, run], counts[range_index, run]
        row = np.repeat(np.arange(len(run)), counts)
        blocks = np.arange(len(row)) + (first - np.cumsum(counts) + counts)[row]
        columns = (range_index[row] + first_index, self._layer[run[row]], blocks)
        # Where a block of a layer is one run, each row comes once, and they come in order.
        return _unique_rows(*columns) if self._is_torn else columns


def _unique_rows(*columns: Integers) -> tuple[Integers, ...]:
    """The distinct rows of the columns, sorted; several runs of a block may lie in one range."""
    rows = np.stack(columns, axis=1)[np.lexsort(columns[::-1])]
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return tuple(rows[is_new].T)


def _runs_of_a_block(view: LayerView) -> Iterator[tuple[int, int]]:
    """Start (relative to the block) and length of each contiguous run of bytes of a block."""
    length = 1
    outer: list[range] = []
    dimensions = zip(view.strides[1:], view.shape[1:], strict=True)
    for stride, size in sorted(d for d in dimensions if d[1] > 1):
        if stride == length and not outer:
            length *= size
        else:
            outer.append(range(0, stride * size, stride))
    for starts in product(*outer):
        yield sum(starts), length
