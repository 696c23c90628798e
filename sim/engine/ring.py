"""One KV cache group of rings on one rank: the tokens of an indexer's group that is not complete.

An indexer that pools has one entry for a group of tokens, made when the last of them comes. What it
is made of waits in a ring, one block for each request, the entry of a token at its position modulo
the ring's size. So a ring is read only by the pass that completes a group which an earlier pass
began; what lies in it of complete groups is nobody's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sim.engine.batch import Batch, Chunk
from sim.engine.entry_group import EntryGroup
from sim.engine.memory import BlockArray, RankMemory
from sim.model.content import EntrySalts, Hashes, entry_bytes
from sim.model.verify import Mismatch, find_ring_mismatches

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class RingGroup(EntryGroup):
    """Rings of a pooling indexer, each of them the only block of its request.

    Args:
        index: of the group, which is the place of its table in a request's block tables.
        tokens_per_entry: tokens that the indexer pools into one entry.
        layers: the salts of what each layer keeps of a token.
    """

    def __init__(
        self,
        engine: Engine,
        rank: int,
        index: int,
        tokens_per_entry: int,
        layers: dict[str, EntrySalts],
        memory: RankMemory,
    ) -> None:
        super().__init__(engine, rank, index, layers, memory)
        self._tokens_per_entry = tokens_per_entry

    def _expected(self, chunk: Chunk, first: int) -> Hashes:
        """What is kept of the tokens from ``first`` up to the chunk is made of this."""
        return chunk.tokens.hashes[first : chunk.start]

    def _counted(self, mismatches: list[Mismatch], chunk: Chunk) -> list[Mismatch]:
        """Those that are wrong."""
        return mismatches

    # ---------------------------------------------------------------- reading

    def read(self, batch: Batch) -> None:
        """Take the earlier tokens of the group that each chunk completes."""
        layers = batch.of_piece(self._layers)
        if not layers:
            return
        for chunk in batch.chunks:
            number, in_ring = divmod(chunk.start, self._tokens_per_entry)
            if not in_ring or chunk.end < (number + 1) * self._tokens_per_entry:
                continue
            block_id = int(self._table(chunk).ids[0])
            seen = self._table(chunk).seen_by(self.reader)
            version = self._memory.versions[block_id]
            if seen[0] == version and not self._check_everything:
                continue
            if batch.piece is None:  # else other layers have not been looked at
                seen[0] = version
            batch.reads.append((chunk.state.request_id, self.index, np.array([block_id])))
            self._compare(batch, chunk, number, block_id, layers)

    def _compare(
        self,
        batch: Batch,
        chunk: Chunk,
        number: int,
        block_id: int,
        layers: Mapping[str, EntrySalts],
    ) -> None:
        """Compare the ring with the tokens of group ``number`` that come before the chunk."""
        first, wrong = number * self._tokens_per_entry, self._wrong(chunk)
        for layer, salts in layers.items():
            mismatches = find_ring_mismatches(
                self._slots[layer],
                salts,
                self._expected(chunk, first),
                block_id=block_id,
                first_token=first,
            )
            mismatches = self._counted(mismatches, chunk)
            key = (self.index, number, layer)
            before = wrong.pop(key, None)
            if not mismatches:
                continue
            wrong[key] = sum(mismatch.digest for mismatch in mismatches) % (1 << 64) or 1
            if wrong[key] != before:
                batch.findings += [
                    self._reporter.finding(chunk.state.request_id, self.index, mismatch)
                    for mismatch in mismatches
                ]

    def read_pending(self, batch: Batch) -> None:
        """Nothing: nobody writes into the ring of another."""

    def forget_recomputed(self, chunk: Chunk) -> None:
        """An entry that was made of wrong tokens stays, until the request makes it again."""
        wrong = self._wrong(chunk)
        for key in [key for key in wrong if key[0] == self.index]:
            if key[1] * self._tokens_per_entry >= chunk.start:
                del wrong[key]

    # ---------------------------------------------------------------- writing

    def write(self, batch: Batch) -> None:
        """Keep the last tokens of each chunk, as many as the indexer pools, and all drafts."""
        layers = batch.of_piece(self._layers)
        if not layers:
            return
        columns = zip(*(self._kept(chunk) for chunk in batch.chunks), strict=True)
        self._scatter(layers, *(np.concatenate(column) for column in columns))
        for chunk in batch.chunks:
            # With only some layers written, others have yet to be looked at.
            first = self._first_kept(chunk) if batch.piece is None else chunk.end
            self._note_written(chunk, first, chunk.end - chunk.num_drafts)

    def _first_kept(self, chunk: Chunk) -> int:
        return max(chunk.start, chunk.end - max(self._tokens_per_entry, chunk.num_drafts + 1))

    def _kept(self, chunk: Chunk) -> tuple[BlockArray, BlockArray, Hashes]:
        """Block ids, positions and prefix hashes of the tokens that are kept."""
        positions = np.arange(self._first_kept(chunk), chunk.end)
        block_ids = np.full(len(positions), self._table(chunk).ids[0])
        return block_ids, positions, chunk.hashes[positions[0] - chunk.start :]

    def _scatter(
        self,
        layers: Mapping[str, EntrySalts],
        block_ids: BlockArray,
        positions: BlockArray,
        hashes: Hashes,
    ) -> None:
        for layer, salts in layers.items():
            slots = self._slots[layer]
            entries = entry_bytes(hashes, salts, slots.shape[-1])
            slots[block_ids, positions % slots.shape[1]] = entries

    def _note_written(self, chunk: Chunk, first: int, end: int) -> None:
        """What a request wrote itself is right: tokens ``first`` to ``end``, and so the ring, if
        the group that is not complete then begins with them. Else it is as right as it was."""
        is_right = first <= end // self._tokens_per_entry * self._tokens_per_entry
        self._wrote(chunk, slice(1), slice(1) if is_right else slice(0))

    def settle(self, batch: Batch) -> None:
        """Nothing: a ring has room for all drafts beside the tokens of the group they go on from,
        and what comes in the place of rejected ones is written before it is read."""
