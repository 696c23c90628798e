"""One KV cache group of recurrent layers on one rank: which blocks hold the state, and when.

A state block covers a span of positions like an attention block; the running state after n tokens
lies in the block of token n - 1. A model that speculates has as many scratch blocks behind it as
there are drafts. A step over a token and k drafts leaves the matrix after each of them in the
running block and the k behind it, and the rows of the convolution in the running block. With a
drafts accepted, the next step reads the matrix a blocks on and the convolution a rows on. Without
prefix caching one block spans the whole context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from vllm.v1.kv_cache_interface import MambaSpec

from sim.engine.batch import TARGET, Batch, BlockTable, Chunk
from sim.engine.memory import BlockArray, RankMemory
from sim.engine.state_copies import StateCopy
from sim.engine.wrong_bytes import WrongBytesReporter
from sim.model.state_content import state_bytes
from sim.model.state_verify import find_state_mismatches
from sim.model.state_window import StateLayout, row_hashes

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class StateGroup:
    """Mamba, KDA and GDN layers.

    Args:
        index: of the group, which is the place of its table in a request's block tables.
        spec: the group's cache spec, taken out of its wrapper.
        layers: how each layer's state lies in a page on this rank.
    """

    def __init__(
        self,
        engine: Engine,
        rank: int,
        index: int,
        spec: MambaSpec,
        layers: dict[str, StateLayout],
        memory: RankMemory,
    ) -> None:
        self.index = index
        self.block_size: int = spec.block_size
        self._engine = engine
        self._layers = layers
        self._states = {layer: memory.caches.states(layer) for layer in layers}
        self._memory = memory
        self._reporter = WrongBytesReporter(engine, rank, memory)
        self._check_everything = engine.world.check == "full"

    def _table(self, chunk: Chunk) -> BlockTable:
        return chunk.state.tables[self.index]

    # ---------------------------------------------------------------- copying

    def copy(self, chunk: Chunk, copy: StateCopy) -> None:
        """Move one request's state, as vLLM's kernel does: rows from the source's block, the
        matrix from one of those behind it."""
        table = self._table(chunk)
        source, matrix, target = copy.source, copy.source + copy.offset, copy.target
        source_id, matrix_id, target_id = (int(table.ids[c]) for c in (source, matrix, target))
        was_right = self._is_seen(table, source) and self._is_seen(table, matrix)
        for layer, states in self._states.items():
            layout = self._layers[layer]
            layout.shift(states[source_id], states[target_id], copy.offset)
            states[target_id, layout.matrix_bytes] = states[matrix_id, layout.matrix_bytes]
        name, node = chunk.state.request_id, self._engine.name
        self._memory.wrote(
            np.array([target_id]),
            self._engine.kernel.now_ns,
            lambda: f"the state copy from block {matrix_id} for {name} on {node}",
        )
        if was_right:
            table.verified[target] = self._memory.versions[target_id]
        if target == chunk.state.state_column:
            chunk.state.checked_offset = 0

    def _is_seen(self, table: BlockTable, column: int) -> bool:
        return bool(table.verified[column] == self._memory.versions[table.ids[column]])

    # ---------------------------------------------------------------- reading

    def read(self, batch: Batch) -> None:
        """Take up the state that each chunk continues from."""
        layers = batch.of_piece(self._layers)
        if not layers:
            return
        for chunk in batch.chunks:
            if chunk.start == 0:
                continue
            table, column = self._table(chunk), chunk.state.state_column
            columns = [column] if chunk.offset == 0 else [column, column + chunk.offset]
            is_checked = chunk.offset == chunk.state.checked_offset
            is_checked &= all(self._is_seen(table, c) for c in columns)
            if is_checked and not self._check_everything:
                continue
            ids = table.ids[columns]
            if batch.piece is None:  # else other layers have not been looked at
                table.verified[columns] = self._memory.versions[ids]
            batch.reads.append((chunk.state.request_id, self.index, ids))
            self._compare(batch, chunk, ids, layers)

    def _compare(
        self, batch: Batch, chunk: Chunk, block_ids: BlockArray, layers: Mapping[str, StateLayout]
    ) -> None:
        state, rows_in, matrix_in = chunk.state, int(block_ids[0]), int(block_ids[-1])
        for layer, layout in layers.items():
            states = self._states[layer]
            window = layout.row_bytes[chunk.offset : chunk.offset + layout.window]
            hashes = row_hashes(chunk.tokens, chunk.start, layout.window)
            matrix = states[matrix_in][None, layout.matrix_bytes]
            found = [
                (matrix_in, find_state_mismatches(matrix, layout.matrix, [0], hashes[-1:])),
                (
                    rows_in,
                    find_state_mismatches(
                        states[rows_in][window], layout.row, range(layout.window), hashes
                    ),
                ),
            ]
            parts = [(block_id, part) for block_id, parts in found for part in parts]
            if not parts:
                continue
            key = (self.index, state.state_column, layer)
            digest = sum(part.digest for _, part in parts) % (1 << 64) or 1
            if state.wrong.get(key) != digest:
                block_id, part = parts[0]
                batch.findings.append(
                    self._reporter.state_finding(
                        state.request_id, self.index, part, chunk.start - 1, block_id
                    )
                )
            state.wrong[key] = digest

    def read_pending(self, batch: Batch) -> None:
        """Nothing: vLLM never schedules a hit on a state that is computed in the same step."""

    def forget_recomputed(self, chunk: Chunk) -> None:
        """A wrong state spoils all that is computed from it, until the request starts again."""
        if chunk.start == 0:
            wrong = chunk.state.wrong
            for key in [key for key in wrong if key[0] == self.index]:
                del wrong[key]

    # ---------------------------------------------------------------- writing

    def write(self, batch: Batch) -> None:
        """Write the states after each chunk and after each of its drafts."""
        layers = batch.of_piece(self._layers)
        if not layers:
            return
        parts = [self._written(chunk) for chunk in batch.chunks]
        blocks, hashes, row_blocks, rows, hashes_of_rows = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        for layer, layout in layers.items():
            states = self._states[layer]
            states[blocks, layout.matrix_bytes] = state_bytes(hashes, layout.matrix)
            places = layout.row_bytes[rows]
            states[row_blocks[:, None], places] = state_bytes(hashes_of_rows, layout.row)
        self._note_written(batch, blocks)

    def _written(self, chunk: Chunk) -> tuple[npt.NDArray[Any], ...]:
        """Blocks and hashes of the matrices; blocks, numbers and hashes of the rows."""
        column, end = self._written_columns(chunk)
        blocks = self._table(chunk).ids[column:end]
        first = chunk.end - chunk.num_drafts
        window = next(iter(self._layers.values())).window
        hashes = np.concatenate([row_hashes(chunk.tokens, first, window), chunk.draft_hashes])
        count = len(hashes)
        return blocks, hashes[window - 1 :], np.repeat(blocks[:1], count), np.arange(count), hashes

    def _note_written(self, batch: Batch, blocks: BlockArray) -> None:
        versions = self._memory.versions
        if batch.piece is not None:
            for chunk in batch.chunks:
                self._keep_verified(chunk)
        names = ", ".join(chunk.state.request_id for chunk in batch.chunks)
        node = self._engine.name
        self._memory.wrote(
            blocks, self._engine.kernel.now_ns, lambda: f"the forward pass of {names} on {node}"
        )
        counted = batch.state_versions.get(self.index)
        batch.state_versions[self.index] = versions[blocks] if counted is None else counted + 1

    def _keep_verified(self, chunk: Chunk) -> None:
        """A piece is about to write. Blocks that are verified stay so: some layers have the state
        that the pass continues from, others the one that it makes."""
        table, (first, end) = self._table(chunk), self._written_columns(chunk)
        verified = table.verified[first:end]
        verified += verified == self._memory.versions[table.ids[first:end]]

    def _written_columns(self, chunk: Chunk) -> tuple[int, int]:
        """First and end of the places in the table that the pass writes."""
        column = chunk.state.state_column
        return column, column + chunk.num_drafts + 1

    def settle(self, batch: Batch) -> None:
        """The drafts have been judged: only the state after the accepted ones is the request's. It
        is right as the pass wrote it, not if others wrote to the block between two pieces."""
        counted, place = batch.state_versions[self.index], 0
        for chunk in batch.chunks:
            table, (column, end) = self._table(chunk), self._written_columns(chunk)
            table.forget(TARGET, column, end)
            chunk.state.checked_offset = chunk.num_accepted - 1
            for number in (0, chunk.num_accepted - 1):
                table.verified[column + number] = counted[place + number]
            place += end - column
