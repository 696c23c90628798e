"""The drafter's rings on one rank: what its indexer pools waits there as the model's does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.engine.batch import DRAFTER, Batch, Chunk, WrongContent
from sim.engine.drafter_rows import OddRows, draft_salts, rows_of_step
from sim.engine.memory import BlockArray, RankMemory
from sim.engine.ring import RingGroup
from sim.model.content import EntrySalts, Hashes
from sim.model.speculation import Speculation
from sim.model.verify import Mismatch

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class DrafterRing(RingGroup):
    """The drafter's layers of the group of rings; they lie in the same blocks as the model's."""

    reader = DRAFTER
    what = "drafter"

    def __init__(
        self,
        engine: Engine,
        rank: int,
        index: int,
        tokens_per_entry: int,
        layers: dict[str, EntrySalts],
        memory: RankMemory,
        speculation: Speculation,
    ) -> None:
        super().__init__(engine, rank, index, tokens_per_entry, layers, memory)
        self._lookahead = speculation.lookahead
        self._draft_salts = draft_salts(layers)
        self._odd_rows = OddRows(engine, speculation, dict.fromkeys(layers, 1))

    def _wrong(self, chunk: Chunk) -> WrongContent:
        return chunk.state.drafter_wrong

    def _expected(self, chunk: Chunk, first: int) -> Hashes:
        return chunk.tokens.hashes[first + self._lookahead : chunk.start + self._lookahead]

    def _counted(self, mismatches: list[Mismatch], chunk: Chunk) -> list[Mismatch]:
        return self._odd_rows.take_out(mismatches, chunk)

    def write_rows(self, batch: Batch, drafts: int) -> None:
        """Keep the last rows of what the model has computed, and all that are made from drafts."""
        for chunk in batch.chunks:
            valid_end = chunk.end - chunk.num_rejected
            first_kept = max(chunk.start, valid_end - self._tokens_per_entry)
            for rows in rows_of_step(chunk, drafts, self._lookahead):
                layers = self._draft_salts if rows.is_draft else self._layers
                kept = slice(max(0, first_kept - rows.first), None)
                positions = np.arange(rows.first, rows.first + len(rows.hashes))[kept]
                self._scatter(layers, self._ring_of(chunk, positions), positions, rows.hashes[kept])
            self._note_written(chunk, first_kept, valid_end)

    def _ring_of(self, chunk: Chunk, positions: BlockArray) -> BlockArray:
        return np.full(len(positions), self._table(chunk).ids[0])
