"""Where the parts of a recurrent state lie within a page, and what they hold.

The convolution keeps its last inputs, a row each: the content of a row is a function of the prefix
that ends with the row's token. The recurrence keeps a matrix, a function of the whole prefix. A
model that speculates keeps a row more for each draft, so that the state after any of a step's
tokens is a window of three rows, and a matrix in a block of its own
(vllm/v1/worker/mamba_utils.py; the convolution in vLLM's "DS" layout, one channel after another).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from sim.model.content import Bytes, Hashes
from sim.model.state_content import StatePiece, StateSalts, state_salts
from sim.model.token_stream import TokenStream

Integers = npt.NDArray[np.int64]

_ELEMENT_BYTES = 2  # bfloat16


@dataclass(frozen=True, eq=False)
class StateLayout:
    """One layer's state on one rank."""

    row: StateSalts
    """Of one row of the convolution, all channels."""
    matrix: StateSalts
    row_bytes: Integers
    """[rows, bytes of a row]: where in the page each byte of each row lies."""
    matrix_bytes: slice
    window: int
    """How many rows a state needs; the further ones are for drafts."""

    @property
    def layer(self) -> str:
        return self.matrix.layer

    def shift(self, source: Bytes, target: Bytes, rows: int) -> None:
        """Copy a page's convolution to another's, or within one, without its first ``rows``."""
        kept = len(self.row_bytes) - rows
        target[self.row_bytes[:kept]] = source[self.row_bytes[rows:]]


@cache
def state_layout(
    layer: str, pieces: tuple[StatePiece, ...], window: int, num_drafts: int = 0
) -> StateLayout:
    """The layout of a page with these ``pieces``, of which each of the convolution has ``window``
    rows and ``num_drafts`` more."""
    rows = window + num_drafts
    convolution = [piece for piece in pieces if piece.tensor == "conv"]
    parts = [_row_bytes(piece.size // rows, rows) for piece in convolution]
    starts = np.cumsum([0, *(piece.size for piece in convolution)])
    size = sum(piece.size for piece in pieces)
    return StateLayout(
        row=state_salts(layer, tuple(replace(p, size=p.size // rows) for p in convolution)),
        matrix=state_salts(layer, pieces[len(convolution) :]),
        row_bytes=np.concatenate([s + p for s, p in zip(starts, parts, strict=False)], axis=1),
        matrix_bytes=slice(int(starts[-1]), size),
        window=window,
    )


def row_hashes(tokens: TokenStream, end: int, count: int) -> Hashes:
    """Of the prefixes that end with each of the ``count`` tokens before ``end``; before the first
    token, of the empty prefix."""
    missing = max(0, count - end)
    known = tokens.hashes[end - count + missing : end]
    return np.concatenate([np.zeros(missing, dtype=np.uint64), known])


def _row_bytes(row_size: int, rows: int) -> Integers:
    """[rows, row_size] within a piece: element after element of a channel lie together."""
    channel, byte = np.divmod(np.arange(row_size), _ELEMENT_BYTES)
    row = np.arange(rows)[:, None]
    places: Integers = (channel * rows + row) * _ELEMENT_BYTES + byte
    return places
