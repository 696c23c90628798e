"""Accountable bytes of recurrent state: what a state page holds is a function of one prefix.

The state after a prefix consists of pieces, one for every head of every part: the convolution's
last inputs to the query, key and value projections, and the recurrence's matrix. Each piece is a
function of the hash of the prefix and of a salt of that piece, so bytes in the place of another
piece are wrong bytes, and pieces that ranks exchange stay right however heads are split over ranks.

This neither knows where a state is stored nor compares anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.model.content import (
    WORD_BYTES,
    WORD_STEP,
    Bytes,
    Hashes,
    as_bytes,
    as_words,
    first_words,
    hashes_of_words,
)

StateTensor = Literal["conv", "ssm"]


@dataclass(frozen=True)
class StatePiece:
    """Consecutive bytes of a state that belong to one head."""

    tensor: StateTensor
    """Which of the state's tensors it lies in; connectors transfer them separately."""
    part: str
    """Of the tensor: query, key or value of the convolution, or the recurrence's state."""
    head: int
    """Its number in the model: ranks that hold the same head hold the same bytes."""
    size: int


@dataclass(frozen=True, eq=False)
class StateSalts:
    """What defines the state bytes of one layer, as one rank caches them."""

    layer: str
    pieces: tuple[StatePiece, ...]
    values: Hashes
    """One salt per piece."""
    starts: npt.NDArray[np.int64]
    """First byte of each piece, and after the last one the size of the state."""
    _word_salts: Hashes
    _word_steps: Hashes
    _picked: npt.NDArray[np.int64] | None
    """The bytes that belong to the state, unless all pieces are whole words."""

    @property
    def size(self) -> int:
        return int(self.starts[-1])


@cache
def state_salts(layer: str, pieces: tuple[StatePiece, ...]) -> StateSalts:
    """The salts of the ``pieces`` of a state of ``layer``; they depend on nothing but names."""
    names = [f"{layer}/{piece.tensor}/{piece.part}/{piece.head}" for piece in pieces]
    digests = [blake2b(name.encode(), digest_size=8).digest() for name in names]
    values = np.array([int.from_bytes(d, "little") for d in digests], dtype=np.uint64)
    sizes = np.array([piece.size for piece in pieces])
    words = -(-sizes // WORD_BYTES)
    steps = np.concatenate([np.arange(count, dtype=np.uint64) for count in words])
    return StateSalts(
        layer=layer,
        pieces=pieces,
        values=values,
        starts=np.concatenate([[0], np.cumsum(sizes)]),
        _word_salts=np.repeat(values, words),
        _word_steps=steps * np.uint64(WORD_STEP),
        _picked=_picked_bytes(sizes, words) if (sizes % WORD_BYTES).any() else None,
    )


def state_bytes(hashes: Hashes, salts: StateSalts) -> Bytes:
    """The states after the prefixes with these hashes, shape [len(hashes), salts.size]."""
    words = first_words(hashes, salts._word_salts) + salts._word_steps
    contents = as_bytes(words)
    return contents if salts._picked is None else contents[:, salts._picked]


def recover_state_hashes(starts: Bytes, salts: Hashes) -> Hashes:
    """The prefix hashes of the states whose pieces begin with the eight bytes ``starts``.

    Args:
        starts: the beginnings of pieces, shape [n, 8].
        salts: of these pieces, shape [n].

    Any eight bytes give some hash: whether it is a real one shows in the other pieces.
    """
    return hashes_of_words(as_words(starts)[:, 0], salts)


def tensor_ranges(pieces: Iterable[StatePiece]) -> dict[StateTensor, range]:
    """The bytes of each tensor within a state, in order."""
    ranges: dict[StateTensor, range] = {}
    start = 0
    for tensor, of_tensor in groupby(pieces, key=lambda piece: piece.tensor):
        stop = start + sum(piece.size for piece in of_tensor)
        ranges[tensor] = range(start, stop)
        start = stop
    return ranges


def _picked_bytes(
    sizes: npt.NDArray[np.int64], words: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    starts = np.cumsum(words * WORD_BYTES) - words * WORD_BYTES
    return np.concatenate(
        [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    )
