"""The drafter of a speculating engine on one rank: its layers' rows in the cache, and its guesses.

It runs after the model has sampled, in the order and with the rows of vLLM's speculators
(vllm/v1/worker/gpu/spec_decode/target_dependent_ar and dflash, dspark). MTP first passes over all
that the model passed over, then one token a pass over its own drafts. DSpark stores what the model
knows of the accepted tokens, then makes all drafts in one pass. Rows of rejected tokens and of
drafts are written too. They are right for nobody and overwritten before anybody may read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.kv_cache_interface import KVCacheSpec

from sim.engine.attention import AttentionGroup
from sim.engine.batch import DRAFTER, Batch, Chunk, WrongContent
from sim.engine.drafter_ring import DrafterRing
from sim.engine.drafter_rows import (
    OddRows,
    Rows,
    draft_salts,
    is_of_another_continuation,
    rows_of_step,
)
from sim.engine.memory import BlockArray, RankMemory
from sim.model.content import EntrySalts, Hashes, next_prefix_hash
from sim.model.speculation import HAND_OFF_REACH, Speculation, draft_token
from sim.model.verify import Mismatch
from sim.probes import OF_ANOTHER_CONTINUATION

if TYPE_CHECKING:
    from sim.engine.engine import Engine

SKIPPED = -1
"""vLLM's mark for a draft that was not made; no token is called so."""


class DrafterGroup(AttentionGroup):
    """The drafter's layers of one KV cache group, its rings excepted."""

    reader = DRAFTER
    what = "drafter"

    def __init__(
        self,
        engine: Engine,
        rank: int,
        index: int,
        spec: KVCacheSpec,
        layers: dict[str, EntrySalts],
        memory: RankMemory,
        speculation: Speculation,
    ) -> None:
        super().__init__(engine, rank, index, spec, layers, memory)
        self._lookahead = speculation.lookahead
        self._draft_salts = draft_salts(layers)
        self._may_find_blocks = engine.options.enable_prefix_caching
        self._odd_rows = OddRows(engine, speculation, self._tokens_per_entry)

    def _wrong(self, chunk: Chunk) -> WrongContent:
        return chunk.state.drafter_wrong

    def _expected(self, chunk: Chunk) -> Hashes:
        return chunk.tokens.hashes[self._lookahead : chunk.start + self._lookahead]

    def _attended(self, mismatches: list[Mismatch], chunk: Chunk) -> list[Mismatch]:
        return self._odd_rows.take_out(super()._attended(mismatches, chunk), chunk)

    def _kind(self, mismatch: Mismatch, chunk: Chunk) -> str | None:
        pooled = self._tokens_per_entry[mismatch.layer]
        if not (self._lookahead and self._may_find_blocks):
            return None
        is_it = is_of_another_continuation(mismatch, chunk, self.block_size, pooled)
        return OF_ANOTHER_CONTINUATION if is_it else None

    # ---------------------------------------------------------------- writing

    def write_rows(self, batch: Batch, drafts: int) -> None:
        """Write the rows of what the model has computed, and those of ``drafts`` drafts."""
        for chunk in batch.chunks:
            for rows in rows_of_step(chunk, drafts, self._lookahead):
                self._write(chunk, rows)
            self._note_written(chunk)
            valid_end = chunk.end - chunk.num_rejected
            last = max(chunk.end, valid_end + drafts)
            self._table(chunk).forget(
                self.reader, valid_end // self.block_size, -(-last // self.block_size)
            )

    def _write(self, chunk: Chunk, rows: Rows) -> None:
        indices, offsets = np.divmod(
            np.arange(rows.first, rows.first + len(rows.hashes)), self.block_size
        )
        ids: BlockArray = self._table(chunk).ids
        exists = indices < len(ids)  # a drafter may guess beyond the longest possible request
        block_ids = ids[indices[exists]]
        layers = self._draft_salts if rows.is_draft else self._layers
        self._scatter(layers, block_ids, offsets[exists], rows.hashes[exists])
        if rows.is_draft:
            name, node = chunk.state.request_id, self._engine.name
            self._memory.wrote(
                block_ids, self._engine.kernel.now_ns, lambda: f"drafts of {name} on {node}"
            )


class Drafter:
    """Proposes the tokens that the model verifies in the next step."""

    def __init__(self, engine: Engine, rank: int, groups: list[DrafterGroup | DrafterRing]) -> None:
        assert engine.options.speculation is not None
        self.speculation = engine.options.speculation
        self.groups = groups
        self._vocab_size = engine.world.vocab_size

    def passes(self, drafts: int) -> int:
        """Passes over its layers for a step with ``drafts`` drafts; the first is never left out,
        because it stores what later steps read."""
        return max(1, drafts) if self.speculation.method == "mtp" else 1

    def read(self, batch: Batch) -> None:
        """Attend to everything before each chunk, in the drafter's own rows."""
        for group in self.groups:
            for chunk in batch.chunks:
                if chunk.state.drafter_wrong:
                    group.forget_recomputed(chunk)
            group.read(batch)

    def propose(self, batch: Batch, drafts: int) -> None:
        """Make ``drafts`` drafts for each request, and write the rows of the step."""
        for chunk in batch.chunks:
            wrong = batch.deviations.get(chunk.state.request_id, 0)
            made = self._drafts(chunk, wrong, drafts)
            skipped = self.speculation.num_speculative_tokens - drafts
            chunk.state.drafts = made + [SKIPPED] * skipped
        for group in self.groups:
            group.write_rows(batch, drafts)
            group.read_pending(batch)

    def _drafts(self, chunk: Chunk, wrong: int, drafts: int) -> list[int]:
        length = chunk.end - chunk.num_rejected + 1
        prefix = chunk.tokens.prefix_hash(length)
        if any(0 < length - row <= HAND_OFF_REACH for row in chunk.state.odd_rows):
            wrong = wrong or 1
        made: list[int] = []
        for _ in range(drafts):
            acceptance = self.speculation.acceptance_per_mille
            token = draft_token(prefix, wrong, self._vocab_size, acceptance)
            made.append(token)
            prefix = next_prefix_hash(prefix, length, token)
            length += 1
        return made
