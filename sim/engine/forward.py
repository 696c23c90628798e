"""The synthetic model: a forward pass that accounts for every byte it reads and writes.

It attends to everything before the tokens it computes: blocks that changed since the request
last looked are compared with what the request's tokens define. Then it writes the entries of
the tokens it computes, and the next token is a function of what it read: right bytes give the
token of the colocated run, wrong bytes another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.kv_cache_interface import KVCacheConfig

from sim.engine.batch import Batch, BlockTable, Chunk, RequestState
from sim.engine.memory import BlockArray, RankMemory
from sim.engine.wrong_bytes import WrongBytesReporter
from sim.model.content import EntrySalts, Hashes, entry_bytes, entry_salts, next_token
from sim.model.verify import Mismatch, find_mismatches
from sim.probes import WrongBytes

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class AttentionGroup:
    """One KV cache group of attention layers on one rank."""

    def __init__(self, index: int, block_size: int, layers: dict[str, EntrySalts]) -> None:
        self.index = index
        self.block_size = block_size
        self.layers = layers


class SyntheticModel:
    """The model's arithmetic on one rank."""

    def __init__(
        self, engine: Engine, rank: int, config: KVCacheConfig, memory: RankMemory
    ) -> None:
        self.engine = engine
        self.rank = rank
        self.memory = memory
        heads = engine.preset.kv_heads_of_rank(engine.options.tp_size, rank, engine.geometry)
        self.groups = [
            AttentionGroup(
                index,
                group.kv_cache_spec.block_size,
                {layer: entry_salts(layer, heads) for layer in group.layer_names},
            )
            for index, group in enumerate(config.kv_cache_groups)
        ]
        self._slots = {layer: memory.caches.slots(layer) for layer in memory.caches.views}
        self.reporter = WrongBytesReporter(engine, rank, memory)
        self.vocab_size = engine.world.vocab_size
        self._check_everything = engine.world.check == "full"

    # ---------------------------------------------------------------- reading

    def read(self, batch: Batch) -> None:
        """Attend to everything before each chunk, as the pass begins.

        In each layer a pass writes the entries of its whole batch before it attends, so blocks
        that it writes for another request of the batch (a prefix hit within one step) can only
        be looked at when it ends.
        """
        written = [self._written_blocks(chunk) for chunk in batch.chunks]
        for number, chunk in enumerate(batch.chunks):
            if chunk.state.wrong:
                self._forget_recomputed(chunk)
            for group, table in zip(self.groups, chunk.state.tables, strict=True):
                indices = self._unseen(chunk, group, table)
                if len(indices) and len(batch.chunks) > 1:
                    others = [w[group.index] for n, w in enumerate(written) if n != number]
                    pending = np.isin(table.ids[indices], np.concatenate(others))
                    if pending.any():
                        batch.pending.append((chunk, group.index, indices[pending]))
                        indices = indices[~pending]
                self._look_at(batch, chunk, group, table, indices)
        self._share_deviations(batch, batch.chunks)

    def _forget_recomputed(self, chunk: Chunk) -> None:
        """Wrong blocks from the chunk on do no harm: the request computes them itself now."""
        sizes = {group.index: group.block_size for group in self.groups}
        wrong = chunk.state.wrong
        for key in [key for key in wrong if key[1] * sizes[key[0]] >= chunk.start]:
            del wrong[key]

    def _written_blocks(self, chunk: Chunk) -> list[BlockArray]:
        """Per group, the ids of the blocks that hold the chunk's own tokens."""
        return [
            table.ids[chunk.start // group.block_size : -(-chunk.end // group.block_size)]
            for group, table in zip(self.groups, chunk.state.tables, strict=True)
        ]

    def _share_deviations(self, batch: Batch, chunks: list[Chunk]) -> None:
        """Ranks exchange activations in every layer, so one rank's wrong bytes are felt by all;
        the sum does not depend on which of them comes first."""
        for chunk in chunks:
            state = chunk.state
            if state.wrong:
                share = state.deviation() * (2 * self.rank + 1)
                total = batch.deviations.get(state.request_id, 0) + share
                batch.deviations[state.request_id] = total % (1 << 64)

    def _unseen(self, chunk: Chunk, group: AttentionGroup, table: BlockTable) -> BlockArray:
        """Places in the table of the blocks before the chunk that changed since the last look."""
        needed = -(-chunk.start // group.block_size)
        if self._check_everything:
            return np.arange(needed)
        return np.flatnonzero(table.verified[:needed] != self.memory.versions[table.ids[:needed]])

    def _look_at(
        self,
        batch: Batch,
        chunk: Chunk,
        group: AttentionGroup,
        table: BlockTable,
        indices: BlockArray,
    ) -> None:
        if not len(indices):
            return
        ids = table.ids[indices]
        batch.reads.append((chunk.state.request_id, group.index, ids))
        table.verified[indices] = self.memory.versions[ids]
        batch.findings += self._compare(chunk.state, group, table, indices, chunk.start)

    def _report(self, batch: Batch) -> None:
        """Tell the probes what was read, when it is known that it counted: what was computed
        from blocks that the connector reports as not loaded, vLLM drops."""
        probes, invalid = self.engine.world.probes, batch.invalid_blocks
        for request_id, group, ids in batch.reads:
            if invalid:
                ids = ids[~np.isin(ids, list(invalid))]
            for probe in probes:
                probe.blocks_read(self.engine.name, self.rank, request_id, group, ids)
        for finding in batch.findings:
            if not invalid.issuperset(finding.block_ids):
                for probe in probes:
                    probe.wrong_bytes(finding)

    def _compare(
        self,
        state: RequestState,
        group: AttentionGroup,
        table: BlockTable,
        indices: BlockArray,
        end: int,
    ) -> list[WrongBytes]:
        """Compare the blocks at ``indices`` of the table, up to token ``end``."""
        before = {}
        if state.wrong:
            looked_at = set(indices.tolist())
            keys = [key for key in state.wrong if key[0] == group.index and key[1] in looked_at]
            before = {key: state.wrong.pop(key) for key in keys}
        hashes = state.tokens.hashes[:end]
        findings: list[WrongBytes] = []
        for layer, salts in group.layers.items():
            mismatches = find_mismatches(
                self._slots[layer],
                salts,
                hashes,
                block_ids=table.ids,
                indices=indices,
                block_size=group.block_size,
            )
            for mismatch in mismatches:
                if self._is_news(state, group, mismatch, before):
                    findings.append(self.reporter.finding(state.request_id, group.index, mismatch))
        return findings

    def _is_news(
        self,
        state: RequestState,
        group: AttentionGroup,
        mismatch: Mismatch,
        before: dict[tuple[int, int, str], int],
    ) -> bool:
        """Remember what is wrong; False if it was wrong in the same way before."""
        first = mismatch.first_token // group.block_size
        last = mismatch.last_token // group.block_size
        keys = [(group.index, index, mismatch.layer) for index in range(first, last + 1)]
        state.wrong.update(dict.fromkeys(keys, mismatch.digest))
        return any(before.get(key) != mismatch.digest for key in keys)

    # ---------------------------------------------------------------- writing

    def write_and_sample(self, batch: Batch) -> None:
        """Write the entries of each chunk's tokens, and sample where a chunk ends the input."""
        for group in self.groups:
            self._write_group(batch.chunks, group)
        for chunk, group_index, indices in batch.pending:
            table = chunk.state.tables[group_index]
            self._look_at(batch, chunk, self.groups[group_index], table, indices)
        self._share_deviations(batch, [chunk for chunk, _, _ in batch.pending])
        self._report(batch)
        for chunk in batch.chunks:
            if chunk.samples:
                self._sample(batch, chunk)

    def _write_group(self, chunks: list[Chunk], group: AttentionGroup) -> None:
        """One scatter per layer for the whole batch, as the kernel does it."""
        parts = [_positions(chunk, group.index, group.block_size) for chunk in chunks]
        columns = zip(*parts, strict=True)
        block_ids, offsets, hashes = (np.concatenate(column) for column in columns)
        for layer, salts in group.layers.items():
            slots = self._slots[layer]
            slots[block_ids, offsets] = entry_bytes(hashes, salts, slots.shape[-1])
        for chunk in chunks:
            self._note_written(chunk, group)

    def _note_written(self, chunk: Chunk, group: AttentionGroup) -> None:
        """What a request wrote itself is right; a block stays verified if it was before."""
        table = chunk.state.tables[group.index]
        first, end = chunk.start // group.block_size, -(-chunk.end // group.block_size)
        ids, verified = table.ids[first:end], table.verified[first:end]
        still_right = verified == self.memory.versions[ids]
        still_right[1:] = True
        if chunk.start % group.block_size == 0:
            still_right[0] = True
        request_id = chunk.state.request_id
        self.memory.wrote(
            ids,
            self.engine.kernel.now_ns,
            lambda: f"the forward pass of {request_id} on {self.engine.name}",
        )
        verified[still_right] = self.memory.versions[ids[still_right]]

    def _sample(self, batch: Batch, chunk: Chunk) -> None:
        state = chunk.state
        wrong = batch.deviations.get(state.request_id, 0)
        token = next_token(state.tokens.prefix_hash(chunk.end), wrong, self.vocab_size)
        batch.sampled[state.request_id] = token
        if len(state.tokens) == chunk.end:
            state.tokens.append(token)

    def zero(self, block_ids: Any) -> None:
        """vLLM's zeroing kernel: all attention layers of the given blocks."""
        self.memory.zero(block_ids)
        self.memory.wrote(
            np.asarray(block_ids),
            self.engine.kernel.now_ns,
            lambda: f"the zeroing of new blocks on {self.engine.name}",
        )


def _positions(chunk: Chunk, group: int, block_size: int) -> tuple[BlockArray, BlockArray, Hashes]:
    """Block ids, slots in them, and prefix hashes of a chunk's tokens."""
    hashes = chunk.state.tokens.hashes[chunk.start : chunk.end]
    ids = chunk.state.tables[group].ids
    if len(hashes) == 1:  # a decode, by far the most frequent case
        index, offset = divmod(chunk.start, block_size)
        return ids[index : index + 1], np.array([offset]), hashes
    indices, offsets = np.divmod(np.arange(chunk.start, chunk.end), block_size)
    return ids[indices], offsets, hashes
