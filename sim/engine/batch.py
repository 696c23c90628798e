"""What a worker keeps of a request: its tokens as the device knows them, and its block tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sim.model.token_stream import TokenStream
from sim.probes import WrongBytes

_NEVER = -1


class BlockTable:
    """A request's blocks in one KV cache group, in order of position.

    ``verified[i]`` is the version of block i at which this request last found its content
    right, or -1.
    """

    def __init__(self, block_ids: Sequence[int]) -> None:
        self._length = 0
        self._ids: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._verified: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.extend(block_ids)

    def __len__(self) -> int:
        return self._length

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._ids[: self._length]

    @property
    def verified(self) -> npt.NDArray[np.int64]:
        return self._verified[: self._length]

    def extend(self, block_ids: Sequence[int]) -> None:
        start, end = self._length, self._length + len(block_ids)
        if end > len(self._ids):
            capacity = max(end, 2 * len(self._ids), 8)
            self._ids = _grown(self._ids, capacity)
            self._verified = _grown(self._verified, capacity)
        self._ids[start:end] = block_ids
        self._verified[start:end] = _NEVER
        self._length = end


def _grown(old: npt.NDArray[np.int64], capacity: int) -> npt.NDArray[np.int64]:
    new = np.empty(capacity, dtype=np.int64)
    new[: len(old)] = old
    return new


@dataclass(eq=False)
class RequestState:
    """One request on one rank, from its first schedule to its end or preemption.

    ``wrong`` maps (group, index of the block in the table, layer) to a digest of the wrong
    content found there; while it is not empty the request's output deviates.
    """

    request_id: str
    prompt_tokens: int
    tokens: TokenStream
    tables: list[BlockTable]
    num_computed: int
    wrong: dict[tuple[int, int, str], int] = field(default_factory=dict)
    promised: int = 0
    """How many tokens there are when every pass that has been launched is over."""
    not_loaded: frozenset[int] = frozenset()
    """Blocks whose load failed, as the connector reported; empty again when the scheduler has
    taken back what was computed from them."""
    state_columns: dict[int, int] = field(default_factory=dict)
    """By group of recurrent layers, the place in the table of the block with the running state."""

    def roll_back(self, num_computed: int, num_output: int) -> None:
        """The scheduler took back tokens, because blocks that they were computed from failed to
        load; what was sampled meanwhile is forgotten, and what a pass that is still under way will
        sample, unless the scheduler goes on counting with it."""
        self.num_computed = num_computed
        self.not_loaded = frozenset()
        self.state_columns.clear()
        kept = self.prompt_tokens + num_output
        if kept < self.promised:
            self.tokens = self.tokens.first(min(len(self.tokens), kept))
            self.promised = len(self.tokens)

    def deviation(self) -> int:
        """0 while everything that was read was right, else a digest of what was not."""
        total = 0
        for (group, index, _layer), digest in sorted(self.wrong.items()):
            total = (total * 0x100000001B3 + digest + group + (index << 8)) % (1 << 64)
        return total or 1 if self.wrong else 0


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The tokens of one request that one forward pass computes: positions [start, end)."""

    state: RequestState
    start: int
    end: int
    samples: bool
    tokens: TokenStream
    """Of the request when the pass was launched."""
    not_loaded: frozenset[int] = frozenset()
    """Of the request, too: the pass was scheduled before the scheduler knew of the failure, and
    what comes of these blocks is dropped with what came of them before."""


@dataclass(eq=False)
class Batch:
    """One forward pass; has the fields that vLLM's connector hooks read from an InputBatch."""

    req_ids: list[str]
    chunks: list[Chunk]
    idx_mapping: npt.NDArray[np.int32]
    num_tokens: int
    reads: list[tuple[str, int, npt.NDArray[np.int64]]] = field(default_factory=list)
    """Request, group and the blocks that it looked at in this pass."""
    findings: list[WrongBytes] = field(default_factory=list)
    invalid_blocks: frozenset[int] = frozenset()
    """What the connector reported as not loaded in this step; vLLM drops what came of it."""
    has_ended: bool = False
    has_results: bool = False
    """Whether the connector has told what became of the step's loads."""
    deviations: dict[str, int] = field(default_factory=dict)
    """By request, what its wrong bytes on all ranks add up to; shared by the ranks' batches."""
    pending: list[tuple[Chunk, int, npt.NDArray[np.int64]]] = field(default_factory=list)
    """Chunk, group and places in the block table that can be looked at only after the writes."""
    sampled: dict[str, int] = field(default_factory=dict)

    def loads_failed(self, block_ids: Iterable[int]) -> None:
        """The connector reports blocks as not loaded in this step."""
        self.invalid_blocks = frozenset(block_ids)
        for state in (chunk.state for chunk in self.chunks):
            for table in state.tables:
                state.not_loaded |= self.invalid_blocks.intersection(table.ids.tolist())

    def dismissed(self) -> dict[str, frozenset[int]]:
        """By request, the blocks from which nothing that this pass computes will be used."""
        return {
            chunk.state.request_id: self.invalid_blocks | chunk.not_loaded
            for chunk in self.chunks
            if self.invalid_blocks or chunk.not_loaded
        }
