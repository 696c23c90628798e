from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.model.content import (
    EMPTY_PREFIX,
    added_token,
    entry_bytes,
    entry_salts,
    entry_words,
    next_prefix_hash,
    next_token,
    prefix_hashes,
    recover_hashes,
)
from sim.model.token_stream import TokenStream

HASHES = ["dce423fc82c0d5b8", "d0d4fe710220b385", "30a91b3ed1c38278"]
ENTRY = "c342094dcc219e3dd8be76445cae0e0e66a78bc0"
NEXT_TOKEN = 85479

token_lists = st.lists(st.integers(0, 2**31 - 1), max_size=40)
hash_values = st.integers(0, 2**64 - 1)


def test_hashes_and_entries_keep_the_values_that_recorded_runs_have() -> None:
    """Artifacts and hardware runs of another version stay comparable."""
    assert [f"{h:016x}" for h in prefix_hashes([1, 2, 3])] == HASHES
    salts = entry_salts("model.layers.0.self_attn.attn", range(1, 3))
    assert entry_bytes(prefix_hashes([1]), salts, 10).tobytes().hex() == ENTRY
    assert next_token(12345, 0, 128_256) == NEXT_TOKEN


@given(token_lists, token_lists)
def test_hashing_in_pieces_equals_hashing_at_once(head: list[int], tail: list[int]) -> None:
    """The hash of a prefix does not depend on how the request was chunked."""
    first = prefix_hashes(head)
    previous = int(first[-1]) if head else EMPTY_PREFIX
    rest = prefix_hashes(tail, len(head), previous)
    np.testing.assert_array_equal(np.concatenate([first, rest]), prefix_hashes(head + tail))


@given(token_lists)
def test_one_token_at_a_time_gives_the_same_hashes(tokens: list[int]) -> None:
    """The scalar path of decoding agrees with the vector path of prefill."""
    hashes, last = [], EMPTY_PREFIX
    for position, token in enumerate(tokens):
        last = next_prefix_hash(last, position, token)
        hashes.append(last)
        assert added_token(hashes[-2] if position else EMPTY_PREFIX, position, last) == token
    assert hashes == prefix_hashes(tokens).tolist()


def test_a_token_is_added_at_its_place_only() -> None:
    """Prefixes that differ in more than one token do not follow each other."""
    one, two, other = prefix_hashes([1, 2, 3]), prefix_hashes([1, 2, 9]), prefix_hashes([4, 2, 3])
    assert added_token(int(one[1]), 2, int(two[2])) == 9
    assert added_token(int(one[1]), 3, int(two[2])) is None
    assert added_token(int(one[1]), 2, int(other[2])) is None
    assert added_token(int(one[0]), 2, int(two[2])) is None


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20), st.data())
def test_a_hash_depends_on_every_earlier_token_and_its_place(
    tokens: list[int], data: st.DataObject
) -> None:
    """Changing a token changes the hashes from there on, and no earlier one."""
    at = data.draw(st.integers(0, len(tokens) - 1))
    changed = [*tokens[:at], tokens[at] + 1, *tokens[at + 1 :]]
    equal = prefix_hashes(tokens) == prefix_hashes(changed)
    assert equal.tolist() == [True] * at + [False] * (len(tokens) - at)


def test_the_order_of_tokens_matters() -> None:
    """The sum inside the hash is commutative; the positions in it are not."""
    assert prefix_hashes([1, 2])[1] != prefix_hashes([2, 1])[1]


@given(st.lists(hash_values, min_size=1, max_size=10))
def test_a_hash_is_recovered_from_the_first_word_of_any_head(values: list[int]) -> None:
    """Found bytes can be traced back to the prefix that they belong to."""
    hashes = np.array(values, dtype=np.uint64)
    salts = entry_salts("layer", range(3))
    recovered = recover_hashes(entry_words(hashes, salts, 2)[:, :, 0], salts)
    np.testing.assert_array_equal(recovered, np.repeat(hashes[:, None], 3, axis=1))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 72, 100])
def test_an_entry_of_any_size_is_a_cut_of_the_longer_ones(size: int) -> None:
    """Sizes need not be whole words."""
    hashes, salts = prefix_hashes(range(5)), entry_salts("layer", range(2))
    entry = entry_bytes(hashes, salts, size)
    assert entry.shape == (5, 2, size)
    np.testing.assert_array_equal(entry, entry_bytes(hashes, salts, 104)[:, :, :size])


def test_every_word_of_every_head_of_every_layer_differs() -> None:
    """Bytes in the wrong place are wrong bytes, even inside one token's entry."""
    hashes = prefix_hashes(range(50))
    layers = [entry_words(hashes, entry_salts(f"layer{i}", range(4)), 9) for i in range(3)]
    assert np.unique(np.stack(layers)).size == 3 * 50 * 4 * 9


def test_ranks_that_hold_the_same_head_hold_the_same_bytes() -> None:
    """A head is salted by its number in the model, not by its place on a rank."""
    hashes = prefix_hashes(range(5))
    both = entry_bytes(hashes, entry_salts("layer", range(2)), 16)
    second = entry_bytes(hashes, entry_salts("layer", range(1, 2)), 16)
    np.testing.assert_array_equal(both[:, 1:], second)


@given(hash_values, st.integers(1, 2**64 - 1), st.integers(20, 200_000))
def test_a_deviation_always_changes_the_token(
    prefix_hash: int, deviation: int, vocab_size: int
) -> None:
    """A wrong byte that was read becomes a wrong token, never the right one by chance."""
    right = next_token(prefix_hash, 0, vocab_size)
    wrong = next_token(prefix_hash, deviation, vocab_size)
    assert right != wrong
    assert 16 <= right < vocab_size
    assert 16 <= wrong < vocab_size


@given(st.lists(token_lists, max_size=6))
def test_a_stream_holds_what_was_added_in_whatever_pieces(pieces: list[list[int]]) -> None:
    """Tokens and hashes of a stream equal those of the whole request."""
    stream = TokenStream()
    for piece in pieces:
        if len(piece) == 1:
            stream.append(piece[0])
        else:
            stream.extend(piece)
    whole = [token for piece in pieces for token in piece]
    assert stream.tokens.tolist() == whole
    assert stream.hashes.tolist() == prefix_hashes(whole).tolist()
    assert stream.prefix_hash(0) == EMPTY_PREFIX


def test_views_of_a_stream_survive_its_growth() -> None:
    """An oracle may keep the hashes that it saw while the request goes on."""
    stream = TokenStream([1, 2, 3])
    seen, copy = stream.hashes, stream.hashes.tolist()
    for token in range(1000):
        stream.append(token)
    assert seen.tolist() == copy
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 0


def test_a_prefix_longer_than_the_stream_is_an_error() -> None:
    """Nothing is invented for tokens that do not exist."""
    with pytest.raises(IndexError, match="prefix of 3 tokens of a stream that has 2"):
        TokenStream([1, 2]).prefix_hash(3)


def test_the_content_needs_neither_vllm_nor_virtual_time() -> None:
    """Hardware tests use it where the simulator's dependencies are absent."""
    program = (
        "import sys, sim.model.content, sim.model.token_stream, sim.model.presets;"
        "print([m for m in ('vllm', 'torch', 'simpy', 'greenlet') if m in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "[]"
