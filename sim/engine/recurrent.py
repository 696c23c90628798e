"""One KV cache group of recurrent layers on one rank: which block holds the state, and when.

A state block covers a span of positions like an attention block; the running state after n
tokens lies in the block of token n - 1. When a chunk ends in another block than the last one did,
the state is first copied there (vLLM's "align" mode, vllm/v1/worker/mamba_utils.py); that copy is
queued on the device before the connector's hooks run, as the worker queues it. Without prefix
caching one block spans the whole context, and nothing is ever copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.kv_cache_interface import MambaSpec

from sim.engine.batch import Batch, BlockTable, Chunk, RequestState
from sim.engine.memory import RankMemory
from sim.engine.wrong_bytes import WrongBytesReporter
from sim.model.state_content import StateSalts, state_bytes
from sim.model.state_verify import find_state_mismatches

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class StateGroup:
    """Mamba, KDA and GDN layers.

    Args:
        index: of the group, which is the place of its table in a request's block tables.
        spec: the group's cache spec, taken out of its wrapper.
        layers: the salts of each layer's state on this rank.
    """

    def __init__(
        self,
        engine: Engine,
        rank: int,
        index: int,
        spec: MambaSpec,
        layers: dict[str, StateSalts],
        memory: RankMemory,
    ) -> None:
        self.index = index
        self.block_size: int = spec.block_size
        self._engine = engine
        self._layers = layers
        self._last_layer = list(layers)[-1]
        self._states = {layer: memory.caches.states(layer) for layer in layers}
        self._memory = memory
        self._reporter = WrongBytesReporter(engine, rank, memory)
        self._check_everything = engine.world.check == "full"

    def _table(self, chunk: Chunk) -> BlockTable:
        return chunk.state.tables[self.index]

    def _column(self, num_tokens: int) -> int:
        """The place in the table of the block that holds the state after ``num_tokens``; -1
        when there is no state yet."""
        return (num_tokens - 1) // self.block_size

    # ---------------------------------------------------------------- carrying

    def carry_over(self, batch: Batch) -> None:
        """Before the pass, move each request's state to the block that the pass will write."""
        for chunk in batch.chunks:
            state = chunk.state
            source = state.state_columns.get(self.index, self._column(chunk.start))
            target = self._column(chunk.end)
            state.state_columns[self.index] = target
            if source >= 0 and source != target:
                self._copy(state, source, target)

    def _copy(self, state: RequestState, source: int, target: int) -> None:
        table = state.tables[self.index]
        source_id, target_id = int(table.ids[source]), int(table.ids[target])
        was_right = table.verified[source] == self._memory.versions[source_id]
        for states in self._states.values():
            states[target_id] = states[source_id]
        self._memory.wrote(
            np.array([target_id]),
            self._engine.kernel.now_ns,
            lambda: (
                f"the state copy from block {source_id} for {state.request_id} "
                f"on {self._engine.name}"
            ),
        )
        if was_right:
            table.verified[target] = self._memory.versions[target_id]

    # ---------------------------------------------------------------- reading

    def read(self, batch: Batch) -> None:
        """Take up the state that each chunk continues from."""
        layers = batch.of_piece(self._layers)
        if not layers:
            return
        for chunk in batch.chunks:
            if chunk.start == 0:
                continue
            table, column = self._table(chunk), self._column(chunk.end)
            block_id = int(table.ids[column])
            version = self._memory.versions[block_id]
            if table.verified[column] == version and not self._check_everything:
                continue
            if batch.piece is None:  # else other layers have not been looked at
                table.verified[column] = version
            batch.reads.append((chunk.state.request_id, self.index, np.array([block_id])))
            self._compare(batch, chunk, column, block_id, layers)

    def _compare(
        self,
        batch: Batch,
        chunk: Chunk,
        column: int,
        block_id: int,
        layers: Mapping[str, StateSalts],
    ) -> None:
        state = chunk.state
        hashes = chunk.tokens.hashes[chunk.start - 1 : chunk.start]
        for layer, salts in layers.items():
            states = self._states[layer]
            for mismatch in find_state_mismatches(states, salts, [block_id], hashes):
                key = (self.index, column, layer)
                is_news = state.wrong.get(key) != mismatch.digest
                state.wrong[key] = mismatch.digest
                if is_news:
                    batch.findings.append(
                        self._reporter.state_finding(
                            state.request_id, self.index, mismatch, chunk.start - 1
                        )
                    )

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
        """Write the state after each chunk, for the whole batch at once."""
        layers = batch.of_piece(self._layers)
        if not layers:
            return
        chunks = batch.chunks
        columns = [self._column(chunk.end) for chunk in chunks]
        block_ids = np.array(
            [self._table(chunk).ids[column] for chunk, column in zip(chunks, columns, strict=True)]
        )
        hashes = np.array(
            [chunk.tokens.prefix_hash(chunk.end) for chunk in chunks], dtype=np.uint64
        )
        for layer, salts in layers.items():
            self._states[layer][block_ids] = state_bytes(hashes, salts)
        names = ", ".join(chunk.state.request_id for chunk in chunks)
        node = self._engine.name
        self._memory.wrote(
            block_ids, self._engine.kernel.now_ns, lambda: f"the forward pass of {names} on {node}"
        )
        if self._last_layer not in layers:
            return  # the next piece has yet to look at its layers
        for chunk, column, block_id in zip(chunks, columns, block_ids, strict=True):
            self._table(chunk).verified[column] = self._memory.versions[block_id]

    def settle(self, batch: Batch) -> None:
        """Nothing yet: models with recurrent layers do not speculate."""
