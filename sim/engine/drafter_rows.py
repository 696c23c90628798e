"""The rows of a drafter's cache: which of them a step writes, and which a hand-off leaves odd.

The row of a token is a function of the prefix that ends ``lookahead`` tokens behind it. A row made
from the drafter's own guesses is one of another kind, which no layer expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sim.engine.batch import Chunk
from sim.model.content import (
    EntrySalts,
    Hashes,
    added_token,
    entry_salts,
    next_prefix_hash,
)
from sim.model.speculation import Speculation, after_hand_off
from sim.model.verify import Mismatch

if TYPE_CHECKING:
    from sim.engine.engine import Engine


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a request, from position ``first`` on."""

    first: int
    hashes: Hashes
    is_draft: bool


def draft_salts(layers: Mapping[str, EntrySalts]) -> dict[str, EntrySalts]:
    """Of rows that are made from guesses."""
    return {name: entry_salts(f"{name}, a draft", salts.heads) for name, salts in layers.items()}


def rows_of_step(chunk: Chunk, drafts: int, lookahead: int) -> list[Rows]:
    """The rows of what the model has computed, and those of ``drafts`` drafts, in the order in
    which they are written."""
    valid_end = chunk.end - chunk.num_rejected
    hashes = chunk.tokens.hashes[chunk.start + lookahead : valid_end + lookahead]
    rows = [Rows(chunk.start, hashes, is_draft=False)]
    drafted = _drafted_hashes(chunk, drafts)
    if lookahead:
        if chunk.num_rejected:
            rejected = chunk.draft_hashes[-chunk.num_rejected :]
            rows.append(Rows(valid_end, rejected, is_draft=True))
        drafted = drafted[1:]  # of the last draft no row is made
    if len(drafted):
        rows.append(Rows(valid_end, drafted, is_draft=True))
    return rows


def _drafted_hashes(chunk: Chunk, drafts: int) -> Hashes:
    """Of the prefixes that end with the token before each draft."""
    hashes: list[int] = []
    length = chunk.end - chunk.num_rejected + 1
    prefix = chunk.tokens.prefix_hash(length)
    for number in range(drafts):
        hashes.append(prefix)
        prefix = next_prefix_hash(prefix, length + number, chunk.state.drafts[number])
    return np.array(hashes, dtype=np.uint64)


class OddRows:
    """Rows that a hand-off leaves by its nature, and that are not wrong for that.

    Args:
        tokens_per_entry: by layer; an entry of several tokens is as odd as the last of them.
    """

    def __init__(
        self, engine: Engine, speculation: Speculation, tokens_per_entry: Mapping[str, int]
    ) -> None:
        self._hand_offs = engine.world.hand_offs
        self._vocab_size = engine.world.vocab_size
        self._lookahead = speculation.lookahead
        self._tokens_per_entry = tokens_per_entry

    def take_out(self, mismatches: list[Mismatch], chunk: Chunk) -> list[Mismatch]:
        """Note that there are odd rows; what remains is wrong."""
        wrong = []
        for mismatch in mismatches:
            if self._is_odd(mismatch, chunk):
                chunk.state.odd_rows.add(mismatch.last_token)
            else:
                wrong.append(mismatch)
        return wrong

    def _is_odd(self, mismatch: Mismatch, chunk: Chunk) -> bool:
        """Whether it is the producer's last row of a prompt that it computed without the last
        token, continued with the token that it sampled."""
        row, tokens = mismatch.last_token, chunk.tokens
        first_of_entry = row - self._tokens_per_entry[mismatch.layer] + 1
        if mismatch.first_token < first_of_entry or not self._lookahead:
            return False
        prefix = tokens.prefix_hash(row + 1)
        if not self._hand_offs.was_cut(prefix, tokens.prefix_hash(row + 2)):
            return False
        return mismatch.found_hash == after_hand_off(prefix, row + 1, self._vocab_size)


def is_of_another_continuation(
    mismatch: Mismatch, chunk: Chunk, block_size: int, tokens_per_entry: int
) -> bool:
    """Whether a block is right but for its last row, which another request's next token made.

    So it is where blocks of equal tokens are taken for each other: their hashes do not cover the
    token after them.
    """
    end = mismatch.last_token + 1
    if end % block_size or end - mismatch.first_token != tokens_per_entry:
        return False
    found = mismatch.found_hash
    return found is not None and added_token(chunk.tokens.prefix_hash(end), end, found) is not None
