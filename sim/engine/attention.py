"""One KV cache group of attention layers on one rank: what it reads, compares and writes.

A pass attends to the tokens before each chunk, all of them or those in a sliding window. Blocks
that changed since the request last looked are compared with what the request's tokens define;
then the entries of the chunk's own tokens are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.kv_cache_interface import KVCacheSpec

from sim.engine.batch import Batch, Chunk, WrongContent
from sim.engine.entry_group import EntryGroup
from sim.engine.memory import BlockArray, RankMemory
from sim.model.content import EntrySalts, Hashes, entry_bytes
from sim.model.verify import Mismatch, find_mismatches
from sim.probes import WrongBytes

if TYPE_CHECKING:
    from sim.engine.engine import Engine

_NOTHING: BlockArray = np.empty(0, dtype=np.int64)


class AttentionGroup(EntryGroup):
    """Full attention, latent or not, and sliding windows, with them indexers that pool tokens; the
    model's own layers of a group.

    Args:
        index: of the group, which is the place of its table in a request's block tables.
        spec: the group's cache spec, taken out of its wrapper.
        layers: the salts of each layer's KV heads on this rank.
    """

    def __init__(
        self,
        engine: Engine,
        rank: int,
        index: int,
        spec: KVCacheSpec,
        layers: dict[str, EntrySalts],
        memory: RankMemory,
    ) -> None:
        super().__init__(engine, rank, index, layers, memory)
        self.block_size: int = spec.block_size
        self._window: int | None = getattr(spec, "sliding_window", None)
        specs = memory.caches.specs
        self._tokens_per_entry = {layer: int(specs[layer].tokens_per_state) for layer in layers}

    # ---------------------------------------------------------------- reading

    def read(self, batch: Batch) -> None:
        """Attend to everything before each chunk, as the pass begins.

        In each layer a pass writes the entries of its whole batch before it attends, so blocks
        that it writes for another request of the batch (a prefix hit within one step) can only
        be looked at when it ends.
        """
        chunks, layers = batch.chunks, batch.of_piece(self._layers)
        if not layers:
            return
        unseen = [self._unseen(chunk) for chunk in chunks]
        written = [self._written_blocks(chunk) for chunk in chunks] if any(map(len, unseen)) else []
        for number, (chunk, indices) in enumerate(zip(chunks, unseen, strict=True)):
            if len(indices) and len(chunks) > 1:
                others = np.concatenate([w for n, w in enumerate(written) if n != number])
                pending = np.isin(self._table(chunk).ids[indices], others)
                if pending.any():
                    batch.pending.append((chunk, self.index, indices[pending]))
                    self._take_wrong(
                        chunk, indices[pending], layers
                    )  # it attends to what comes instead
                    indices = indices[~pending]
            self._look_at(batch, chunk, indices)

    def look_again(self, batch: Batch) -> None:
        """Look at blocks that were written to during the pass, before it writes itself."""
        for chunk in batch.chunks:
            changed = self._unseen(chunk)
            if not len(changed):
                continue
            pending = [i for c, group, i in batch.pending if c is chunk and group == self.index]
            self._look_at(batch, chunk, np.setdiff1d(changed, np.concatenate([*pending, _NOTHING])))

    def read_pending(self, batch: Batch) -> None:
        """Look at what the pass itself had to write first."""
        for chunk, group, indices in batch.pending:
            if group == self.index:
                self._look_at(batch, chunk, indices)

    def _seen(self, chunk: Chunk) -> BlockArray:
        return self._table(chunk).seen_by(self.reader)

    def _expected(self, chunk: Chunk) -> Hashes:
        """What the entries before the chunk are made of, in order of position."""
        return chunk.tokens.hashes[: chunk.start]

    def _written_blocks(self, chunk: Chunk) -> BlockArray:
        first, end = chunk.start // self.block_size, -(-chunk.end // self.block_size)
        return self._table(chunk).ids[first:end]

    def _unseen(self, chunk: Chunk) -> BlockArray:
        """Places in the table of the blocks before the chunk, in the window if there is one,
        that changed since the last look, or were wrong then and may be mended in this pass."""
        table, end = self._table(chunk), -(-chunk.start // self.block_size)
        first = self._first_attended(chunk) // self.block_size
        if self._check_everything:
            return np.arange(first, end)
        unseen = self._seen(chunk)[first:end] != self._memory.versions[table.ids[first:end]]
        for group, index, _layer in self._wrong(chunk):
            if group == self.index and first <= index < end:
                unseen[index - first] = True
        return np.flatnonzero(unseen) + first

    def _look_at(self, batch: Batch, chunk: Chunk, indices: BlockArray) -> None:
        if not len(indices):
            return
        ids = self._table(chunk).ids[indices]
        batch.reads.append((chunk.state.request_id, self.index, ids))
        if batch.piece is None:  # else other layers of the blocks have not been looked at
            self._seen(chunk)[indices] = self._memory.versions[ids]
        batch.findings += self._compare(chunk, indices, batch.of_piece(self._layers))

    def _compare(
        self, chunk: Chunk, indices: BlockArray, layers: Mapping[str, EntrySalts]
    ) -> list[WrongBytes]:
        """Compare the blocks at ``indices`` of the table, up to the chunk."""
        state, before = chunk.state, self._take_wrong(chunk, indices, layers)
        hashes = self._expected(chunk)
        findings: list[WrongBytes] = []
        for layer, salts in layers.items():
            mismatches = find_mismatches(
                self._slots[layer],
                salts,
                hashes,
                block_ids=self._table(chunk).ids,
                indices=indices,
                block_size=self.block_size,
                tokens_per_entry=self._tokens_per_entry[layer],
            )
            for mismatch in self._attended(mismatches, chunk):
                if self._is_news(chunk, mismatch, before):
                    kind = self._kind(mismatch, chunk)
                    findings.append(
                        self._reporter.finding(state.request_id, self.index, mismatch, kind)
                    )
        return findings

    def _kind(self, mismatch: Mismatch, chunk: Chunk) -> str | None:
        """The name of what was found wrong, if it has one."""
        return None

    def _attended(self, mismatches: list[Mismatch], chunk: Chunk) -> list[Mismatch]:
        """Without what lies in the first block of the window, but before the window."""
        first = self._first_attended(chunk)
        return [
            replace(mismatch, first_token=max(mismatch.first_token, first))
            for mismatch in mismatches
            if mismatch.last_token >= first
        ]

    def _first_attended(self, chunk: Chunk) -> int:
        """The first token that the chunk's first token attends to."""
        return 0 if self._window is None else max(0, chunk.start - self._window + 1)

    def _take_wrong(
        self, chunk: Chunk, indices: BlockArray, layers: Mapping[str, EntrySalts]
    ) -> WrongContent:
        """Forget what was known to be wrong at ``indices`` of the table, and return it."""
        wrong = self._wrong(chunk)
        if not wrong:
            return {}
        places = set(indices.tolist())
        keys = [
            key for key in wrong if key[0] == self.index and key[1] in places and key[2] in layers
        ]
        return {key: wrong.pop(key) for key in keys}

    def _is_news(self, chunk: Chunk, mismatch: Mismatch, before: WrongContent) -> bool:
        """Remember what is wrong; False if it was wrong in the same way before."""
        first = mismatch.first_token // self.block_size
        last = mismatch.last_token // self.block_size
        keys = [(self.index, index, mismatch.layer) for index in range(first, last + 1)]
        self._wrong(chunk).update(dict.fromkeys(keys, mismatch.digest))
        return any(before.get(key) != mismatch.digest for key in keys)

    def forget_recomputed(self, chunk: Chunk) -> None:
        """Wrong blocks from the chunk on do no harm: the request computes them itself now."""
        wrong = self._wrong(chunk)
        mine = [key for key in wrong if key[0] == self.index]
        for key in mine:
            if key[1] * self.block_size >= chunk.start:
                del wrong[key]

    # ---------------------------------------------------------------- writing

    def write(self, batch: Batch) -> None:
        """Write the entries of the whole batch, one scatter per layer, as the kernel does it."""
        layers = batch.of_piece(self._layers)
        if not layers:
            return
        columns = zip(*(self._positions(chunk) for chunk in batch.chunks), strict=True)
        self._scatter(layers, *(np.concatenate(column) for column in columns))
        is_first = batch.piece is None or self.index not in batch.written_groups
        batch.written_groups.add(self.index)
        for chunk in batch.chunks:
            self._note_written(chunk, is_first)

    def _scatter(
        self,
        layers: Mapping[str, EntrySalts],
        block_ids: BlockArray,
        offsets: BlockArray,
        hashes: Hashes,
    ) -> None:
        for layer, salts in layers.items():
            slots, shared_by = self._slots[layer], self._tokens_per_entry[layer]
            # An entry is written with the last of its tokens; blocks are whole entries.
            last = slice(None) if shared_by == 1 else (offsets + 1) % shared_by == 0
            entries = entry_bytes(hashes[last], salts, slots.shape[-1])
            slots[block_ids[last], offsets[last] // shared_by] = entries

    def _positions(self, chunk: Chunk) -> tuple[BlockArray, BlockArray, Hashes]:
        """Block ids, slots in them, and prefix hashes of a chunk's tokens."""
        hashes = chunk.hashes
        ids = self._table(chunk).ids
        if len(hashes) == 1:  # a decode, by far the most frequent case
            index, offset = divmod(chunk.start, self.block_size)
            return ids[index : index + 1], np.array([offset]), hashes
        indices, offsets = np.divmod(np.arange(chunk.start, chunk.end), self.block_size)
        return ids[indices], offsets, hashes

    def _note_written(self, chunk: Chunk, is_first: bool = True) -> None:
        """What a request wrote itself is right; a block stays verified if it was before. The first
        piece of a pass speaks for those to come; if others write between them, it is void."""
        first, end = chunk.start // self.block_size, -(-chunk.end // self.block_size)
        begun = int(chunk.start % self.block_size != 0)
        self._wrote(chunk, slice(first, end), slice(begun, None) if is_first else slice(0))

    def settle(self, batch: Batch) -> None:
        """The drafts have been judged: nobody may read the entries of those that were rejected."""
        for chunk in batch.chunks:
            if chunk.num_rejected:
                first_rejected = chunk.end - chunk.num_rejected
                self._table(chunk).forget(
                    self.reader, first_rejected // self.block_size, -(-chunk.end // self.block_size)
                )
