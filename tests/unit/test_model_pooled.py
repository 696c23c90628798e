"""Entries of several tokens, and entries in rings: what is right, and how wrong ones are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.model.content import entry_bytes, entry_salts
from sim.model.token_stream import TokenStream
from sim.model.verify import Mismatch, find_mismatches, find_ring_mismatches

BLOCK, POOLED, SIZE = 16, 4, 12
LAYER = "layers.3.indexer"
SALTS, KEPT = entry_salts(LAYER, range(1)), entry_salts("layers.3.ring", range(2))
TABLE = [5, 2, 7, 3]
MINE, OTHER = TokenStream(range(100, 160)), TokenStream(range(500, 564))


def memory(stream: TokenStream = MINE, table: Any = TABLE) -> Any:
    """An indexer's layer with 9 blocks, right for every complete group of the stream."""
    slots = np.full((9, BLOCK // POOLED, 1, SIZE), 0xEE, dtype=np.uint8)
    for last in range(POOLED - 1, len(stream), POOLED):
        entry = entry_bytes(stream.hashes[last : last + 1], SALTS, SIZE)[0]
        slots[table[last // BLOCK], last % BLOCK // POOLED] = entry
    return slots


def check(slots: Any, tokens: int = len(MINE), indices: Any = range(4)) -> list[Mismatch]:
    return find_mismatches(
        slots,
        SALTS,
        MINE.hashes[:tokens],
        block_ids=TABLE,
        indices=indices,
        block_size=BLOCK,
        tokens_per_entry=POOLED,
    )


@pytest.mark.parametrize("tokens", range(len(MINE) + 1))
def test_there_are_as_many_entries_as_complete_groups(tokens: int) -> None:
    """The entry of an incomplete group is nobody's business; that of a complete one is."""
    slots = memory(MINE.first(tokens))
    assert check(slots, tokens) == []
    complete = tokens // POOLED
    slots[...] = 0
    ends = [mismatch.last_token for mismatch in check(slots, tokens)]
    assert ends == ([complete * POOLED - 1] if complete else [])


@given(st.integers(0, len(MINE) // POOLED - 1), st.integers(0, SIZE - 1), st.integers(1, 255))
def test_any_single_wrong_byte_is_found(entry: int, place: int, change: int) -> None:
    """It is reported with all tokens of its group, and their block."""
    slots = memory()
    first, last = entry * POOLED, entry * POOLED + POOLED - 1
    slots[TABLE[first // BLOCK], first % BLOCK // POOLED, 0, place] ^= change
    (mismatch,) = check(slots)
    assert (mismatch.first_token, mismatch.last_token) == (first, last)
    assert (mismatch.block_ids, mismatch.wrong_bytes) == ((TABLE[first // BLOCK],), 1)


def test_an_entry_depends_on_every_token_of_its_group_and_before() -> None:
    """Another first token gives another entry, though the rest of the group is the same."""
    tokens = MINE.tokens.copy()
    tokens[8] += 1
    (mismatch,) = check(memory(TokenStream(tokens)), indices=[0])
    assert (mismatch.first_token, mismatch.last_token) == (8, 15)


def test_the_entries_of_another_request_are_traced_to_its_prefix() -> None:
    """Block by block, because hashes do not show whether groups follow each other."""
    slots, others = memory(), memory(OTHER)
    slots[[2, 7]] = others[[2, 7]]
    first, second = check(slots)
    assert [(m.first_token, m.last_token) for m in (first, second)] == [(16, 31), (32, 47)]
    assert (first.found_hash, second.found_hash) == (OTHER.hashes[19], OTHER.hashes[35])


def ring(stream: TokenStream, tokens: int, size: int) -> Any:
    """A layer with 9 rings; that of block 6 holds the last tokens of the stream."""
    slots = np.full((9, size, 2, 16), 0xEE, dtype=np.uint8)
    for position in range(max(0, tokens - size), tokens):
        entry = entry_bytes(stream.hashes[position : position + 1], KEPT, 16)[0]
        slots[6, position % size] = entry
    return slots


def check_ring(slots: Any, first: int, end: int) -> list[Mismatch]:
    return find_ring_mismatches(slots, KEPT, MINE.hashes[first:end], block_id=6, first_token=first)


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("tokens", [5, 7, 18, 59])
def test_the_tokens_of_a_group_lie_at_their_positions_modulo_the_ring(
    tokens: int, size: int
) -> None:
    """Whatever the ring's size, and only they are looked at."""
    first = tokens // POOLED * POOLED
    slots = ring(MINE, tokens, size)
    assert check_ring(slots, first, tokens) == []
    slots[6, first % size, 1, 3] ^= 1
    (mismatch,) = check_ring(slots, first, tokens)
    assert (mismatch.first_token, mismatch.last_token) == (first, first)
    assert (mismatch.block_ids, mismatch.wrong_bytes) == ((6,), 1)
    slots = ring(MINE, tokens, size)
    slots[6, (first - 1) % size] = 0
    in_use = {position % size for position in range(first, tokens)}
    assert bool(check_ring(slots, first, tokens)) == ((first - 1) % size in in_use)


def test_the_ring_of_another_request_is_traced_to_its_prefix() -> None:
    """Both requests are at the same position; the whole run is the other one's."""
    (mismatch,) = check_ring(ring(OTHER, 19, 8), 16, 19)
    assert (mismatch.first_token, mismatch.last_token) == (16, 18)
    assert mismatch.found_hash == OTHER.hashes[16]
