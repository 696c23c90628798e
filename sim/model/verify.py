"""Compares what a cache holds with what it should hold, and says what was found instead.

A found entry can be traced back to a prefix hash; which request that hash belongs to is for the
caller to look up. Nothing here knows requests, engines or faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.model.content import (
    Bytes,
    EntrySalts,
    Hashes,
    as_words,
    entry_bytes,
    extend_each_other,
    recover_hashes,
)

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
FoundKind = Literal["zeros", "entry", "unknown"]

SAMPLE_BYTES = 16


def nobodys_bytes(kind: Literal["zeros", "unknown"], sample: bytes) -> str:
    """In words, what was found where nobody's entry or state is."""
    return "zeros" if kind == "zeros" else f"unknown bytes {sample.hex()}"


@dataclass(frozen=True)
class Found:
    """What one wrong entry holds."""

    kind: FoundKind
    sample: bytes
    """The first bytes of the entry."""
    prefix_hash: int | None = None
    """Of an "entry": hash of the prefix whose right entry this would be."""
    layer: str | None = None
    """Of an "entry": the layer in which it would be right."""
    heads: range | None = None
    """Of an "entry": the heads for which it would be right; they tell the rank."""


@dataclass(frozen=True)
class Mismatch:
    """Consecutive tokens whose entries in one layer are wrong in the same way."""

    layer: str
    block_ids: tuple[int, ...]
    first_token: int
    last_token: int
    """Inclusive."""
    wrong_bytes: int
    content: Found
    """What the first of the tokens has; further entries belong to longer prefixes of the same."""
    digest: int
    """Of all the bytes that were read, never 0; an input of `content.next_token`."""

    @property
    def found_hash(self) -> int | None:
        """Hash of the prefix that the first found entry belongs to, if it is an entry."""
        return self.content.prefix_hash

    @property
    def found(self) -> str:
        """What was found, in words."""
        content = self.content
        if content.kind != "entry":
            return nobodys_bytes(content.kind, content.sample)
        assert content.heads is not None
        place = "" if content.layer == self.layer else f" in {content.layer}"
        heads = f"{content.heads.start} to {content.heads.stop - 1}"
        return f"the entry of prefix {content.prefix_hash:016x}{place}, heads {heads}"


@dataclass(frozen=True, eq=False)
class Candidates:
    """What wrong bytes may turn out to be."""

    salts: Sequence[EntrySalts] = ()
    """Of other layers, and of other ranks."""
    known_hashes: Hashes | None = None
    """All prefix hashes there are, sorted. Without them an entry of a single word counts as an
    entry of its own layer whatever it holds, because any word could be one."""


_OWN_LAYER_ONLY = Candidates()


def find_mismatches(
    slots: Bytes,
    salts: EntrySalts,
    hashes: Hashes,
    *,
    block_ids: Sequence[int] | Integers,
    indices: Sequence[int] | Integers,
    block_size: int,
    tokens_per_entry: int = 1,
    candidates: Candidates = _OWN_LAYER_ONLY,
) -> list[Mismatch]:
    """The wrong entries of a request in one layer, in order of position.

    An entry of several tokens belongs to the prefix that ends with the last of them; there is none
    before that token has come.

    Args:
        slots: the layer's memory, [blocks, entries of a block, heads, content].
        salts: of the layer's heads on this rank.
        hashes: of the request's prefixes; as many tokens are expected in the cache.
        block_ids: the request's block table.
        indices: the places of the block table to check, ascending.
        block_size: tokens of a block.
        tokens_per_entry: tokens that share an entry.
        candidates: helps to name what was found.
    """
    table = np.asarray(block_ids, dtype=np.int64)
    per_block, of_entries = (
        block_size // tokens_per_entry,
        hashes[tokens_per_entry - 1 :: tokens_per_entry],
    )
    starts = np.asarray(indices, dtype=np.int64)[:, None] * per_block
    places = (starts + np.arange(per_block)).reshape(-1)
    places = places[places < len(of_entries)]
    return _compare(
        slots,
        salts,
        of_entries[places],
        places,
        (table[places // per_block], places % per_block),
        tokens_per_entry,
        candidates,
    )


def find_ring_mismatches(
    slots: Bytes,
    salts: EntrySalts,
    hashes: Hashes,
    *,
    block_id: int,
    first_token: int,
    candidates: Candidates = _OWN_LAYER_ONLY,
) -> list[Mismatch]:
    """The wrong ones among a request's last entries in a ring, which is one block for all tokens.

    Args:
        slots: the layer's memory, [blocks, tokens of a ring, heads, content].
        salts: of the layer's heads on this rank.
        hashes: of the request's prefixes that end with the tokens to check.
        block_id: the request's ring.
        first_token: the position of the first of these tokens.
        candidates: helps to name what was found.
    """
    positions = np.arange(first_token, first_token + len(hashes))
    places = (np.full(len(positions), block_id), positions % slots.shape[1])
    return _compare(slots, salts, hashes, positions, places, 1, candidates)


def _compare(
    slots: Bytes,
    salts: EntrySalts,
    hashes: Hashes,
    numbers: Integers,
    places: tuple[Integers, Integers],
    tokens_per_entry: int,
    candidates: Candidates,
) -> list[Mismatch]:
    """Entries by their numbers in the request; ``places`` are block ids and offsets in them."""
    found: Bytes = slots[places]
    expected = entry_bytes(hashes, salts, slots.shape[-1])
    if np.array_equal(wide(found), wide(expected)):
        return []
    differing = (found != expected).sum(axis=(1, 2))
    wrong = np.flatnonzero(differing)
    comparison = _Comparison(
        salts,
        numbers[wrong],
        places[0][wrong],
        found[wrong],
        differing[wrong],
        tokens_per_entry,
        candidates,
    )
    return list(comparison.mismatches())


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The wrong entries of one layer; parallel arrays, one element an entry."""

    salts: EntrySalts
    numbers: Integers
    blocks: Integers
    found: Bytes
    differing: Integers
    tokens_per_entry: int
    candidates: Candidates

    def mismatches(self) -> Iterator[Mismatch]:
        for start, stop in self._runs():
            first = int(self.numbers[start]) * self.tokens_per_entry
            last = (int(self.numbers[stop - 1]) + 1) * self.tokens_per_entry - 1
            blocks = self.blocks[start:stop]
            yield Mismatch(
                layer=self.salts.layer,
                block_ids=tuple(blocks[np.diff(blocks, prepend=-1) != 0].tolist()),
                first_token=first,
                last_token=last,
                wrong_bytes=int(self.differing[start:stop].sum()),
                content=self._identify(self.found[start]),
                digest=self._digest(first, self.found[start:stop]),
            )

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Index ranges of consecutive entries: zeros, one request's entries, or neither."""
        hashes, is_entry = self._entries_of(self.salts, self.found)
        kinds = np.where(self.found.any(axis=(1, 2)), np.where(is_entry, 1, 2), 0)
        is_other_request = self._may_be_another_requests(hashes) & (kinds[1:] == 1)
        breaks = (np.diff(self.numbers) != 1) | (np.diff(kinds) != 0) | is_other_request
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(self.numbers)]
        return pairwise(edges)

    def _may_be_another_requests(self, hashes: Hashes) -> Flags:
        """For each neighbouring pair, whether the second may be of another request than the first.

        Of prefixes that differ by several tokens that cannot be told; but what lies in a block is
        usually one request's.
        """
        if self.tokens_per_entry > 1:
            is_next_block: Flags = np.diff(self.blocks) != 0
            return is_next_block
        return ~extend_each_other(hashes)

    def _identify(self, entry: Bytes) -> Found:
        sample = entry.tobytes()[:SAMPLE_BYTES]
        if not entry.any():
            return Found("zeros", sample)
        # A single word could be an entry of any layer if nothing is known about hashes.
        is_ambiguous = entry.size <= 8 and self.candidates.known_hashes is None
        for salts in (self.salts, *(() if is_ambiguous else self.candidates.salts)):
            hashes, is_entry = self._entries_of(salts, entry[None])
            if is_entry[0]:
                return Found("entry", sample, int(hashes[0]), salts.layer, salts.heads)
        return Found("unknown", sample)

    def _entries_of(self, salts: EntrySalts, entries: Bytes) -> tuple[Hashes, Flags]:
        """The prefix hashes that entries seem to stem from, and whether they really do."""
        count, heads, size = entries.shape
        if size < 8 or heads != len(salts.values):
            return np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=bool)
        hashes = recover_hashes(as_words(entries[:, :, :8])[:, :, 0], salts)[:, 0]
        is_entry = (entry_bytes(hashes, salts, size) == entries).all(axis=(1, 2))
        return hashes, is_entry & is_known(hashes, self.candidates.known_hashes)

    def _digest(self, first_token: int, found: Bytes) -> int:
        digest = blake2b(f"{self.salts.layer}/{first_token}/".encode(), digest_size=8)
        digest.update(found.tobytes())
        return int.from_bytes(digest.digest(), "little") | 1


def is_known(hashes: Hashes, known: Hashes | None) -> Flags:
    """Which of ``hashes`` are among the sorted ``known`` ones; all, if nothing is known."""
    if known is None:
        return np.ones(len(hashes), dtype=bool)
    if not len(known):
        return np.zeros(len(hashes), dtype=bool)
    places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    found: Flags = known[places] == hashes
    return found


def wide(entries: Bytes) -> npt.NDArray[np.generic]:
    """The same bytes in words where they divide, which compare several times faster."""
    dense = np.ascontiguousarray(entries)
    return dense.view(np.uint64) if dense.shape[-1] % 8 == 0 else dense
