"""The synthetic model: a forward pass that accounts for every byte it reads and writes.

Each KV cache group reads what the batch attends to, compares it, and writes what the batch
computes. The next token is a function of what was read: right bytes give the token of the
colocated run, wrong bytes another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.kv_cache_interface import CircularBufferSpec, KVCacheConfig, MambaSpec
from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

from sim.engine.attention import AttentionGroup
from sim.engine.batch import Batch, Chunk, RequestState, WrongContent, deviation
from sim.engine.drafter import Drafter, DrafterGroup
from sim.engine.drafter_ring import DrafterRing
from sim.engine.memory import RankMemory
from sim.engine.recurrent import StateGroup
from sim.engine.ring import RingGroup
from sim.engine.state_copies import StateCopy, column_of, copy_after, copy_before
from sim.model.content import EntrySalts, entry_salts, next_token
from sim.model.speculation import Speculation
from sim.model.state_window import StateLayout, state_layout

if TYPE_CHECKING:
    from sim.engine.engine import Engine

_NONE: frozenset[int] = frozenset()

CacheGroup = AttentionGroup | StateGroup | RingGroup


def _wrong(state: RequestState) -> WrongContent:
    return state.wrong


def _drafter_wrong(state: RequestState) -> WrongContent:
    return state.drafter_wrong


class SyntheticModel:
    """The model's arithmetic on one rank."""

    def __init__(
        self, engine: Engine, rank: int, config: KVCacheConfig, memory: RankMemory
    ) -> None:
        self.engine = engine
        self.rank = rank
        self.memory = memory
        self.vocab_size = engine.world.vocab_size
        drafted = engine.drafter_layers
        layers = {
            index: [name for name in group.layer_names if name not in drafted]
            for index, group in enumerate(config.kv_cache_groups)
        }
        # A drafter may have a group of its own.
        self.groups = [self._make_group(index, names) for index, names in layers.items() if names]
        self.state_groups = [group for group in self.groups if isinstance(group, StateGroup)]
        self.drafter = self._make_drafter(config) if drafted else None

    def _make_drafter(self, config: KVCacheConfig) -> Drafter:
        engine = self.engine
        speculation = engine.options.speculation
        assert speculation is not None
        groups: list[DrafterGroup | DrafterRing] = []
        for index, group in enumerate(config.kv_cache_groups):
            layers = [layer for layer in group.layer_names if layer in engine.drafter_layers]
            if layers:
                groups.append(self._make_drafter_group(index, layers, speculation))
        return Drafter(engine, self.rank, groups)

    def _make_drafter_group(
        self, index: int, layers: list[str], speculation: Speculation
    ) -> DrafterGroup | DrafterRing:
        engine, rank, memory = self.engine, self.rank, self.memory
        spec, salts = memory.caches.specs[layers[0]], self._salts(layers)
        if isinstance(spec, CircularBufferSpec):
            pooled = self._tokens_per_entry()
            return DrafterRing(engine, rank, index, pooled, salts, memory, speculation)
        return DrafterGroup(engine, rank, index, spec, salts, memory, speculation)

    def _make_group(self, index: int, layers: list[str]) -> CacheGroup:
        """By what the group's layers are; they may differ, but not in that."""
        engine, rank, spec = self.engine, self.rank, self.memory.caches.specs[layers[0]]
        if isinstance(spec, MambaSpec):
            return StateGroup(engine, rank, index, spec, self._state_layouts(layers), self.memory)
        entries = self._salts(layers)
        if isinstance(spec, CircularBufferSpec):
            return RingGroup(engine, rank, index, self._tokens_per_entry(), entries, self.memory)
        return AttentionGroup(engine, rank, index, spec, entries, self.memory)

    def _state_layouts(self, layers: list[str]) -> dict[str, StateLayout]:
        engine = self.engine
        drafts = engine.options.num_speculative_tokens
        state = engine.preset.sizes(engine.geometry).state
        assert state is not None, f"recurrent layers without a state in {engine.preset.name}"
        pieces = state.pieces(engine.options.tp_size, self.rank, drafts)
        window = state.conv_kernel_size - 1
        return {layer: state_layout(layer, pieces, window, drafts) for layer in layers}

    def _salts(self, layers: list[str]) -> dict[str, EntrySalts]:
        """Of the heads of layers whose caches hold entries."""
        engine, spec = self.engine, self.memory.caches.specs[layers[0]]
        heads = engine.preset.kv_heads_of_rank(engine.options.tp_size, self.rank, engine.geometry)
        if isinstance(spec, CircularBufferSpec):  # a key and a gate score, the same on every rank
            heads = range(spec.num_heads)
        return {layer: entry_salts(layer, heads) for layer in layers}

    def _tokens_per_entry(self) -> int:
        """Tokens that an indexer pools into one entry."""
        indexer = self.engine.preset.sizes(self.engine.geometry).indexer
        assert indexer is not None, f"a ring without an indexer in {self.engine.preset.name}"
        return indexer.tokens_per_entry

    def carry_over(self, batch: Batch) -> None:
        """Before the pass: copy recurrent states to the blocks that it will write."""
        block_size = self.state_groups[0].block_size
        for chunk in batch.chunks:
            state = chunk.state
            if state.state_column < 0:
                state.state_column = column_of(chunk.start, block_size)
            copy = copy_before(state.state_column, state.num_accepted, chunk.end, block_size)
            state.state_column = column_of(chunk.end, block_size)
            if copy is not None:
                state.num_accepted = 1
                self._copy_states(chunk, copy)
            chunk.offset = state.num_accepted - 1

    def keep_states(self, batch: Batch) -> None:
        """After the step: copy the states at ends of blocks to where prefix caching finds them."""
        block_size = self.state_groups[0].block_size
        for chunk in batch.chunks:
            state = chunk.state
            copy = copy_after(state.state_column, state.num_accepted, state.computed, block_size)
            if copy is None:
                continue
            if copy.source == copy.target:
                state.num_accepted = 1
            if copy.source != copy.target or copy.offset:
                self._copy_states(chunk, copy)

    def _copy_states(self, chunk: Chunk, copy: StateCopy) -> None:
        for group in self.state_groups:
            group.copy(chunk, copy)

    def _record_first_passes(self, batch: Batch) -> None:
        first = [chunk for chunk in batch.chunks if not chunk.state.has_begun]
        for chunk in first:
            chunk.state.has_begun = True
        if first:
            self.engine.kernel.record(
                "forward-began",
                node=self.engine.name,
                rank=self.rank,
                requests=[[chunk.state.request_id, chunk.start, chunk.end] for chunk in first],
            )

    def read(self, batch: Batch, piece: Sequence[str] | None) -> None:
        """A piece of the pass begins: its layers attend to everything before each chunk."""
        batch.begin()
        batch.piece = piece
        if not batch.has_read:
            self._record_first_passes(batch)
        for group in self.groups:
            for chunk in batch.chunks:
                if chunk.state.wrong and not batch.has_read:
                    group.forget_recomputed(chunk)
            group.read(batch)
        batch.has_read = True

    def _look_again(self, batch: Batch) -> None:
        """Something has landed while the pass was reading. What it read of that, it read before or
        after; wrong bytes are reported here, and change tokens from the next pass on."""
        for group in self.groups:
            if isinstance(group, AttentionGroup):
                group.look_again(batch)

    def read_last(self, batch: Batch, piece: Sequence[str] | None) -> None:
        """The last piece begins, or the whole pass."""
        batch.landings = self.memory.landings
        self.read(batch, piece)
        self._share_deviations(batch, batch.chunks, _wrong)

    def write(self, batch: Batch, piece: Sequence[str] | None) -> None:
        """A piece of the pass ends: the entries of its layers are there."""
        batch.piece = piece
        for group in self.groups:
            group.write(batch)

    def write_and_sample(self, batch: Batch, piece: Sequence[str] | None) -> None:
        """The pass ends: all entries are there, and tokens where a chunk ends the input."""
        if piece is None and self.memory.landings != batch.landings:
            self._look_again(batch)
        self.write(batch, piece)
        batch.piece = None
        if batch.pending:
            for group in self.groups:
                group.read_pending(batch)
            self._share_deviations(batch, [chunk for chunk, _, _ in batch.pending], _wrong)
        for chunk in batch.chunks:
            if chunk.samples:
                self._sample(batch, chunk)
            chunk.state.computed = chunk.end - chunk.num_rejected
            chunk.state.num_accepted = chunk.num_accepted
        for group in self.groups:
            group.settle(batch)
        batch.has_ended = True
        if batch.has_results:
            self._report(batch)

    def results_known(self, batch: Batch) -> None:
        """The connector has said which blocks it did not load; a host that was slow, or stopped,
        may say so after the end of the pass."""
        batch.has_results = True
        if batch.has_ended:
            self._report(batch)

    def read_for_drafts(self, batch: Batch) -> None:
        """The drafter begins; the pass of the model is over."""
        assert self.drafter is not None
        self.drafter.read(batch)
        self._share_deviations(batch, batch.chunks, _drafter_wrong)

    def propose(self, batch: Batch, drafts: int) -> None:
        """The drafter ends: its rows are there, and what it proposes for the next step."""
        assert self.drafter is not None
        self.drafter.propose(batch, drafts)
        self._report(batch)

    def zero(self, block_ids: Any) -> None:
        """vLLM's zeroing kernel: all attention layers of the given blocks."""
        self.memory.zero(block_ids)
        self.memory.wrote(
            np.asarray(block_ids),
            self.engine.kernel.now_ns,
            lambda: f"the zeroing of new blocks on {self.engine.name}",
        )
        self.engine.world.probes.blocks_zeroed(self.engine.name, self.rank, block_ids)

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """vLLM's copies on write, whole blocks of all layers: pairs of source and destination."""
        caches = self.memory.caches
        copy_kv_cache_blocks_inplace(caches.views.values(), caches.config.num_blocks, copies)
        sources, targets = np.array(copies).T
        self.memory.wrote(
            targets,
            self.engine.kernel.now_ns,
            lambda: f"the copy of blocks {sources.tolist()} on {self.engine.name}",
        )

    def _share_deviations(
        self, batch: Batch, chunks: list[Chunk], wrong_of: Callable[[RequestState], WrongContent]
    ) -> None:
        """Ranks exchange activations in every layer, so one rank's wrong bytes are felt by all;
        the sum does not depend on which of them comes first."""
        for chunk in chunks:
            state = chunk.state
            wrong = wrong_of(state)
            if wrong:
                share = deviation(wrong) * (2 * self.rank + 1)
                total = batch.deviations.get(state.request_id, 0) + share
                batch.deviations[state.request_id] = total % (1 << 64)

    def _report(self, batch: Batch) -> None:
        """Tell the probes what was read, when it is known that it counted: what was computed
        from blocks that the connector reports as not loaded, vLLM drops."""
        probes, dismissed = self.engine.world.probes, batch.dismissed()
        for request_id, group, ids in batch.reads:
            if request_id in dismissed:
                ids = ids[~np.isin(ids, list(dismissed[request_id]))]
            probes.blocks_read(self.engine.name, self.rank, request_id, group, ids)
        for finding in batch.findings:
            if not dismissed.get(finding.request_id, _NONE).issuperset(finding.block_ids):
                probes.wrong_bytes(finding)

    def _sample(self, batch: Batch, chunk: Chunk) -> None:
        """Generate a token, and as many more as drafts turn out to be what was generated."""
        state, base = chunk.state, chunk.end - chunk.num_drafts
        wrong = batch.deviations.get(state.request_id, 0)
        sampled = batch.sampled[state.request_id] = []
        for number in range(chunk.num_drafts + 1):
            token = next_token(chunk.prefix_hash(base + number), wrong, self.vocab_size)
            sampled.append(token)
            if number == chunk.num_drafts or token != state.drafts[number]:
                break
        chunk.num_rejected = chunk.num_drafts + 1 - len(sampled)
        if len(chunk.tokens) == base:
            for token in sampled:
                chunk.tokens.append(token)
