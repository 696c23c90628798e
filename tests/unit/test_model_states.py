from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv_planning import plan_preset

from sim.model.arena import Arena
from sim.model.caches import KVCaches
from sim.model.content import prefix_hashes
from sim.model.presets import PRESETS, get_preset
from sim.model.state_content import (
    StatePiece,
    StateSalts,
    recover_state_hashes,
    state_bytes,
    state_salts,
    tensor_ranges,
)
from sim.model.state_verify import StateCandidates, StateMismatch, find_state_mismatches

HYBRIDS = [name for name, preset in PRESETS.items() if preset.is_hybrid]
LAYER, OTHER_LAYER = "layers.0.linear", "layers.1.linear"
PIECES = get_preset("kimi-linear").state_pieces(2, 0)
SALTS = state_salts(LAYER, PIECES)
PARTS = tensor_ranges(PIECES)
HASHES = prefix_hashes(range(100, 110))
OTHERS = prefix_hashes(range(500, 510))
KNOWN = np.sort(np.concatenate([HASHES, OTHERS]))
BLOCKS = [5, 2, 7]
STATE_START = "6a82e760699592fd"

piece_lists = st.lists(
    st.builds(
        StatePiece,
        st.just("conv"),
        st.sampled_from(["query", "key"]),
        st.integers(0, 9),
        st.integers(8, 40),
    ),
    min_size=1,
    max_size=6,
).map(tuple)
hash_lists = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5)


def memory(hashes: Any = HASHES, salts: StateSalts = SALTS) -> Any:
    """States of one layer with 9 blocks; the first hashes' are in the blocks above."""
    states = np.full((9, salts.size), 0xEE, dtype=np.uint8)
    states[BLOCKS] = state_bytes(hashes[:3], salts)
    return states


def check(states: Any, **options: Any) -> list[StateMismatch]:
    return find_state_mismatches(states, SALTS, BLOCKS, HASHES[:3], **options)


def candidates(*salts: StateSalts) -> StateCandidates:
    return StateCandidates(salts, KNOWN)


# -------------------------------------------------------------------- content


def test_states_keep_the_values_that_recorded_runs_have() -> None:
    """Artifacts and hardware runs of another version stay comparable."""
    state = state_bytes(prefix_hashes([1]), SALTS)[0]
    assert state[:8].tobytes().hex() == STATE_START


@given(piece_lists, hash_lists)
def test_every_piece_leads_back_to_the_prefix(pieces: Any, values: list[int]) -> None:
    """Whatever the sizes; found bytes can be traced to the request they belong to."""
    salts, hashes = state_salts(LAYER, pieces), np.array(values, dtype=np.uint64)
    states = state_bytes(hashes, salts)
    assert states.shape == (len(values), sum(piece.size for piece in pieces))
    for start, salt in zip(salts.starts[:-1], salts.values, strict=True):
        words = states[:, start : start + 8]
        recovered = recover_state_hashes(words, np.repeat(salt, len(values)))
        np.testing.assert_array_equal(recovered, hashes)


@given(st.integers(1, 30), st.integers(1, 30))
def test_a_piece_of_any_size_is_a_cut_of_the_longer_ones(first: int, second: int) -> None:
    """Sizes need not be whole words, and a piece does not depend on those before it."""
    short, long = (
        state_salts(LAYER, tuple(StatePiece("ssm", "state", head, size) for head, size in sizes))
        for sizes in ([(0, first), (1, second)], [(0, 32), (1, 32)])
    )
    cut, whole = state_bytes(HASHES, short), state_bytes(HASHES, long)
    np.testing.assert_array_equal(cut[:, :first], whole[:, :first])
    np.testing.assert_array_equal(cut[:, first:], whole[:, 32 : 32 + second])


@pytest.mark.parametrize("name", HYBRIDS)
def test_every_word_of_every_piece_of_every_layer_differs(name: str) -> None:
    """Bytes in the wrong place are wrong bytes: swapped tensors, parts, heads and layers."""
    pieces = get_preset(name).state_pieces(1, 0)
    layers = [state_bytes(HASHES, state_salts(f"layer{i}", pieces)) for i in range(3)]
    words = np.stack(layers).view(np.uint64)
    assert np.unique(words).size == words.size


@pytest.mark.parametrize("name", HYBRIDS)
def test_ranks_hold_the_parts_of_one_state(name: str) -> None:
    """A piece is salted by its head's number in the model, so a transfer between engines with
    different numbers of ranks has an outcome that is right."""
    preset = get_preset(name)

    def by_piece(tp_size: int, rank: int) -> dict[StatePiece, bytes]:
        salts = state_salts(LAYER, preset.state_pieces(tp_size, rank))
        (state,) = state_bytes(HASHES[:1], salts)
        cuts = np.split(state, salts.starts[1:-1])
        return {piece: cut.tobytes() for piece, cut in zip(salts.pieces, cuts, strict=True)}

    assert by_piece(2, 0) | by_piece(2, 1) == by_piece(1, 0)


def test_the_content_needs_neither_vllm_nor_virtual_time() -> None:
    """Hardware tests use it where the simulator's dependencies are absent."""
    program = (
        "import sys, sim.model.state_content, sim.model.state_verify;"
        "print([m for m in ('vllm', 'torch', 'simpy', 'greenlet') if m in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "[]"


# --------------------------------------------------------------- verification


def test_right_states_have_no_mismatch() -> None:
    """Other blocks are nobody's business."""
    assert check(memory()) == []


@given(st.integers(0, 2), st.integers(0, SALTS.size - 1), st.integers(1, 255))
def test_any_single_wrong_byte_is_found(index: int, place: int, change: int) -> None:
    """Whichever it is, in whichever state, and only it."""
    states = memory()
    states[BLOCKS[index], place] ^= change
    (mismatch,) = check(states)
    assert (mismatch.index, mismatch.block_id, mismatch.wrong_bytes) == (index, BLOCKS[index], 1)
    piece = PIECES[int(np.searchsorted(SALTS.starts, place, side="right")) - 1]
    assert mismatch.wrong_parts == (f"{piece.tensor} {piece.part}",)
    assert mismatch.content.kind == "unknown"


def test_zeroed_states_are_called_zeros() -> None:
    """The zeroing kernel came too late, or nothing has arrived."""
    states = memory()
    states[[5, 7]] = 0
    first, second = check(states)
    assert (first.found, first.found_hash) == ("zeros", None)
    assert (first.block_id, second.block_id) == (5, 7)
    assert first.wrong_parts == ("conv query", "conv key", "conv value", "ssm state")


def test_the_state_of_another_request_is_traced_to_its_prefix() -> None:
    """As is an earlier state of the same request, which has run too far or not far enough."""
    states = memory()
    states[2] = state_bytes(OTHERS[4:5], SALTS)[0]
    states[7] = state_bytes(HASHES[6:7], SALTS)[0]
    for options in ({}, {"candidates": candidates()}):
        other, later = check(states, **options)
        assert (other.found_hash, later.found_hash) == (OTHERS[4], HASHES[6])
        assert other.found == f"the state after prefix {OTHERS[4]:016x}"


@pytest.mark.parametrize("tensor", ["conv", "ssm"])
def test_one_stale_tensor_is_told_apart_from_the_other(tensor: Any) -> None:
    """A connector that moved one of the two shows as an old state in the other's bytes alone."""
    states = memory()
    part = slice(PARTS[tensor].start, PARTS[tensor].stop)
    states[5, part] = state_bytes(OTHERS[:1], SALTS)[0, part]
    (mismatch,) = check(states)
    assert mismatch.found_hash == OTHERS[0]
    assert mismatch.wrong_bytes == pytest.approx(part.stop - part.start, rel=0.02)
    assert {name.split()[0] for name in mismatch.wrong_parts} == {tensor}


def test_swapped_tensors_are_named() -> None:
    """Each has the right request's bytes, in the other's place."""
    states = memory()
    right = states[5].copy()
    conv = len(PARTS["conv"])
    states[5, : SALTS.size - conv] = right[conv:]
    states[5, SALTS.size - conv :] = right[:conv]
    (mismatch,) = check(states, candidates=candidates())
    assert mismatch.content.place == "ssm state of head 0"
    assert mismatch.found_hash == HASHES[0]


def test_swapped_parts_of_the_convolution_are_named() -> None:
    """Query and key have the same sizes, so an offset table that mixes them up goes unnoticed."""
    states = memory()
    quarter = len(PARTS["conv"]) // 3
    states[5, :quarter] = memory()[5, quarter : 2 * quarter]
    (mismatch,) = check(states, candidates=candidates())
    assert mismatch.wrong_parts == ("conv query",)
    assert mismatch.content.place == "conv key of head 0"


def test_states_of_another_layer_or_rank_are_named_if_they_are_candidates() -> None:
    """An offset that is off by a layer shows as that layer's bytes."""
    states = memory()
    other_layer = state_salts(OTHER_LAYER, PIECES)
    other_rank = state_salts(LAYER, get_preset("kimi-linear").state_pieces(2, 1))
    states[5] = state_bytes(HASHES[:1], other_layer)[0]
    states[7] = state_bytes(HASHES[2:3], other_rank)[0]
    assert [m.content.kind for m in check(states)] == ["unknown", "unknown"]
    layer, rank = check(states, candidates=candidates(other_layer, other_rank))
    assert (layer.content.layer, layer.found_hash) == (OTHER_LAYER, HASHES[0])
    assert layer.found.endswith(f"in {OTHER_LAYER}")
    assert (rank.content.layer, rank.found_hash) == (LAYER, HASHES[2])


def test_garbage_is_shown() -> None:
    """Nothing is made up for bytes that are nobody's."""
    states = memory()
    states[2] = 0xAB
    for options in ({}, {"candidates": candidates(state_salts(OTHER_LAYER, PIECES))}):
        (mismatch,) = check(states, **options)
        assert mismatch.found == "unknown bytes " + 16 * "ab"


def test_the_digest_tells_different_wrong_bytes_apart() -> None:
    """The wrong token is a function of what was read, not of the fact that it was wrong."""
    digests = []
    for value in (1, 2, 1):
        states = memory()
        states[2] = value
        digests += [mismatch.digest for mismatch in check(states)]
    assert digests[0] == digests[2] != digests[1]
    assert 0 not in digests


def test_no_states_have_no_mismatch() -> None:
    """A batch may have no request that reads a state."""
    assert find_state_mismatches(memory(), SALTS, [], HASHES[:0]) == []


@pytest.mark.parametrize("tp_size", [1, 2])
@pytest.mark.parametrize("name", HYBRIDS)
def test_states_in_a_real_cache_are_right_where_they_are_written(name: str, tp_size: int) -> None:
    """Through vLLM's layout and padding, on every rank, for several requests at once."""
    preset = get_preset(name)
    workers, _, layout = plan_preset(name, tp_size=tp_size)
    for rank, config in enumerate(workers):
        caches = KVCaches.allocate(config, layout.name, Arena())
        (group, *_) = config.kv_cache_groups
        pieces = preset.state_pieces(tp_size, rank)
        salts = {layer: state_salts(layer, pieces) for layer in group.layer_names}
        for layer in group.layer_names:
            caches.states(layer)[BLOCKS] = state_bytes(HASHES[:3], salts[layer])
        damaged = group.layer_names[0]
        caches.views[damaged][7].zero_()
        wrong = [
            (layer, mismatch.index, mismatch.found)
            for layer in group.layer_names
            for mismatch in find_state_mismatches(
                caches.states(layer), salts[layer], BLOCKS, HASHES[:3]
            )
        ]
        assert wrong == [(damaged, 2, "zeros")]
