"""What a worker keeps of a request: its tokens as the device knows them, and its block tables.

The host launches passes before it knows how many drafts earlier ones accepted. So where a chunk
begins is decided on the device, when the pass before it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sim.model.content import Hashes, next_prefix_hash
from sim.model.token_stream import TokenStream
from sim.probes import WrongBytes

_NEVER = -1
TARGET, DRAFTER = 0, 1
"""The two that read a block table's blocks: the model, and the drafter that speculates for it."""
WrongContent = dict[tuple[int, int, str], int]
"""(group, index of the block in the table, layer) to a digest of the wrong content found there."""
_Value = TypeVar("_Value")


class BlockTable:
    """A request's blocks in one KV cache group, in order of position.

    ``seen_by(reader)[i]`` is the version of block i at which that reader last found its content
    right for this request, or -1.
    """

    def __init__(self, block_ids: Sequence[int]) -> None:
        self._length = 0
        self._ids: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._seen: npt.NDArray[np.int64] = np.empty((2, 0), dtype=np.int64)
        self.extend(block_ids)

    def __len__(self) -> int:
        return self._length

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._ids[: self._length]

    @property
    def seen(self) -> npt.NDArray[np.int64]:
        """By reader and place."""
        return self._seen[:, : self._length]

    def seen_by(self, reader: int) -> npt.NDArray[np.int64]:
        return self._seen[reader, : self._length]

    @property
    def verified(self) -> npt.NDArray[np.int64]:
        """As the model saw the blocks."""
        return self.seen_by(TARGET)

    def extend(self, block_ids: Sequence[int]) -> None:
        start, end = self._length, self._length + len(block_ids)
        if end > len(self._ids):
            capacity = max(end, 2 * len(self._ids), 8)
            self._ids = _grown(self._ids, capacity)
            self._seen = _grown(self._seen, capacity)
        self._ids[start:end] = block_ids
        self._seen[:, start:end] = _NEVER
        self._length = end

    def forget(self, reader: int, start: int, end: int) -> None:
        """The reader has to look again at the blocks [start, end)."""
        self._seen[reader, start : min(end, self._length)] = _NEVER


def _grown(old: npt.NDArray[np.int64], capacity: int) -> npt.NDArray[np.int64]:
    new = np.empty((*old.shape[:-1], capacity), dtype=np.int64)
    new[..., : old.shape[-1]] = old
    return new


@dataclass(eq=False)
class RequestState:
    """One request on one rank, from its first schedule to its end or preemption.

    While ``wrong`` is not empty the request's output deviates; while ``drafter_wrong`` is not, its
    drafts do.
    """

    request_id: str
    prompt_tokens: int
    tokens: TokenStream
    tables: list[BlockTable]
    computed: int
    """Tokens whose entries are there, as the device knows it."""
    surely_computed: int
    """At least so many are when every pass that has been launched is over: as the host knows it,
    which cannot count on any draft being accepted."""
    wrong: WrongContent = field(default_factory=dict)
    drafter_wrong: WrongContent = field(default_factory=dict)
    promised: int = 0
    """How many tokens there are, at least, when every pass that has been launched is over."""
    not_loaded: frozenset[int] = frozenset()
    """Blocks whose load failed, as the connector reported; empty again when the scheduler has
    taken back what was computed from them."""
    taken_back_to: int | None = None
    """Where the scheduler wants the next pass to begin, if it took back what was computed."""
    state_column: int = -1
    """Of recurrent layers, the place in the table of the block with the running state."""
    num_accepted: int = 1
    """How many tokens of the last step count; which of its states that makes the running one."""
    checked_offset: int = 0
    """Which of them is known to be right, if its blocks have not changed since."""
    drafts: list[int] = field(default_factory=list)
    """What the drafter proposed after the last pass."""
    has_begun: bool = False
    """Whether a forward pass has read for it."""
    odd_rows: set[int] = field(default_factory=set)
    """Positions of rows that the drafter found to be the other legal ones of a hand-off."""

    def roll_back(self, num_computed: int, num_output: int) -> None:
        """The scheduler took back tokens, because blocks that they were computed from failed to
        load; what was sampled meanwhile is forgotten, and what a pass that is still under way will
        sample, unless the scheduler goes on counting with it."""
        self.taken_back_to = self.surely_computed = num_computed
        self.not_loaded = frozenset()
        kept = self.prompt_tokens + num_output
        if kept < self.promised:
            self.tokens = self.tokens.first(min(len(self.tokens), kept))
            self.promised = len(self.tokens)


def deviation(wrong: WrongContent) -> int:
    """0 while everything that was read was right, else a digest of what was not."""
    total = 0
    for (group, index, _layer), digest in sorted(wrong.items()):
        total = (total * 0x100000001B3 + digest + group + (index << 8)) % (1 << 64)
    return total or 1 if wrong else 0


NOBODYS_TOKEN = 0
"""What a pass takes for tokens that were scheduled and that nobody has sampled."""


@dataclass(slots=True, eq=False)
class Chunk:
    """The tokens of one request that one forward pass computes: positions [start, end).

    The last ``num_drafts`` of them are what the drafter proposed. Which positions these are is
    known on the device only, once it has begun with the pass.
    """

    state: RequestState
    num_tokens: int
    num_drafts: int
    tokens: TokenStream
    """Of the request when the pass was launched."""
    taken_back_to: int | None = None
    not_loaded: frozenset[int] = frozenset()
    """Of the request, too: the pass was scheduled before the scheduler knew of the failure, and
    what comes of these blocks is dropped with what came of them before."""
    start: int = -1
    end: int = -1
    samples: bool = False
    """Whether it ends the input; a prompt that is not complete yet gives no token."""
    num_rejected: int = 0
    """Drafts that the model did not generate itself, once it has sampled."""
    offset: int = 0
    """How many states behind the first one the one is that the chunk continues from."""
    draft_hashes: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    """Of the prefixes that end with the drafts."""

    @property
    def num_accepted(self) -> int:
        """How many tokens count, of those that recurrent layers keep a state for: the last one and
        the drafts behind it."""
        return self.num_drafts + 1 - self.num_rejected

    @property
    def expected_span(self) -> tuple[int, int]:
        """Its positions as the host knows them when it launches the pass, if no draft was accepted
        of which it does not know yet."""
        end = self.state.surely_computed + self.num_drafts
        return end - self.num_tokens, end

    def begin(self) -> None:
        """The device comes to the pass: everything before it is known."""
        state = self.state
        if self.taken_back_to is not None:
            state.computed = self.taken_back_to
            state.state_column, state.num_accepted = -1, 1
        self.start, self.end = state.computed, state.computed + self.num_tokens
        first_draft = self.end - self.num_drafts
        if (missing := first_draft - len(self.tokens)) > 0:
            self.tokens.extend([NOBODYS_TOKEN] * missing)
        self.samples = first_draft >= len(self.tokens)
        if self.num_drafts:
            self.draft_hashes = _extended(
                self.tokens.prefix_hash(first_draft), first_draft, state.drafts[: self.num_drafts]
            )

    @property
    def hashes(self) -> Hashes:
        """Of the prefixes that end with the chunk's tokens, drafts included."""
        known = self.tokens.hashes[self.start : self.end - self.num_drafts]
        return np.concatenate([known, self.draft_hashes]) if self.num_drafts else known

    def prefix_hash(self, length: int) -> int:
        """Of the first ``length`` tokens of the input, drafts included."""
        beyond = length - (self.end - self.num_drafts)
        if beyond > 0:
            return int(self.draft_hashes[beyond - 1])
        return self.tokens.prefix_hash(length)


def _extended(prefix_hash: int, position: int, tokens: Sequence[int]) -> Hashes:
    """Hashes of the prefix with one token more, two tokens more, and so on."""
    hashes = []
    for number, token in enumerate(tokens):
        prefix_hash = next_prefix_hash(prefix_hash, position + number, token)
        hashes.append(prefix_hash)
    return np.array(hashes, dtype=np.uint64)


@dataclass(eq=False)
class Batch:
    """One forward pass; has the fields that vLLM's connector hooks read from an InputBatch."""

    req_ids: list[str]
    chunks: list[Chunk]
    idx_mapping: npt.NDArray[np.int32]
    num_tokens: int
    landings: int = 0
    """How often something had landed in the rank's caches when the pass began to read."""
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
    sampled: dict[str, list[int]] = field(default_factory=dict)
    piece: Sequence[str] | None = None
    """The layers of the piece of the pass that runs; None when it is the whole pass."""
    written_groups: set[int] = field(default_factory=set)
    """Groups of attention layers of which a piece of the pass has written."""
    state_versions: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    """By group of recurrent layers, the versions of the blocks written, chunk by chunk, as the
    pass counts them: it does not know what others write between its pieces."""
    has_begun: bool = False
    has_read: bool = False
    """Whether the first piece has begun."""

    def begin(self) -> None:
        """The device comes to the step; whichever of its operations is the first."""
        if not self.has_begun:
            self.has_begun = True
            for chunk in self.chunks:
                chunk.begin()

    def of_piece(self, layers: Mapping[str, _Value]) -> Mapping[str, _Value]:
        """Those of ``layers`` that run now."""
        if self.piece is None:
            return layers
        return {layer: layers[layer] for layer in self.piece if layer in layers}

    def drafting(self) -> Batch:
        """The drafter's share of the step, once the connector has told of the step's loads."""
        return Batch(
            self.req_ids,
            self.chunks,
            self.idx_mapping,
            self.num_tokens,
            invalid_blocks=self.invalid_blocks,
            has_results=True,
        )

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
