from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv_planning import KVCacheLayout, plan_preset

from sim.model.arena import Arena
from sim.model.caches import KVCaches
from sim.model.content import EntrySalts, entry_bytes, entry_salts
from sim.model.presets import get_preset
from sim.model.token_stream import TokenStream
from sim.model.verify import Candidates, Mismatch, find_mismatches

BLOCK = 16
LAYER, OTHER_LAYER = "layers.0.attn", "layers.1.attn"
HEADS = range(2)
SALTS = entry_salts(LAYER, HEADS)
TABLE = [5, 2, 7, 3]
MINE, OTHER = TokenStream(range(100, 160)), TokenStream(range(500, 564))


def memory(size: int = 16) -> Any:
    """Slots of one layer with 9 blocks, zeroed."""
    return np.zeros((9, BLOCK, len(HEADS), size), dtype=np.uint8)


def write(slots: Any, stream: TokenStream, table: list[int], salts: EntrySalts = SALTS) -> None:
    """The right entries of all tokens of a stream."""
    positions = np.arange(len(stream))
    blocks = np.array(table)[positions // BLOCK]
    slots[blocks, positions % BLOCK] = entry_bytes(stream.hashes, salts, slots.shape[-1])


def check(slots: Any, salts: EntrySalts = SALTS, **options: Any) -> list[Mismatch]:
    """What is wrong with the first request's cache."""
    defaults: dict[str, Any] = {"block_ids": TABLE, "indices": range(4), "block_size": BLOCK}
    return find_mismatches(slots, salts, MINE.hashes, **(defaults | options))


@pytest.mark.parametrize("size", [5, 8, 12, 16])
def test_right_entries_have_no_mismatch(size: int) -> None:
    """Bytes beyond the request's last token, and other blocks, are nobody's business."""
    slots = memory(size)
    slots[...] = 0xEE
    write(slots, MINE, TABLE)
    assert check(slots) == []


@given(st.integers(0, len(MINE) - 1), st.integers(0, 1), st.integers(0, 15), st.integers(0, 255))
def test_any_single_wrong_byte_is_found(token: int, head: int, place: int, value: int) -> None:
    """Whichever it is, and only it."""
    slots = memory()
    write(slots, MINE, TABLE)
    byte = slots[TABLE[token // BLOCK], token % BLOCK, head]
    if byte[place] == value:
        return
    byte[place] = value
    (mismatch,) = check(slots)
    assert (mismatch.first_token, mismatch.last_token, mismatch.wrong_bytes) == (token, token, 1)
    assert mismatch.block_ids == (TABLE[token // BLOCK],)
    assert mismatch.content.kind == "unknown"
    assert mismatch.found.startswith("unknown bytes ")


def test_zeroed_blocks_are_reported_as_one_run() -> None:
    """Consecutive tokens in the same state, over block boundaries."""
    slots = memory()
    write(slots, MINE, TABLE)
    slots[[2, 7]] = 0
    (mismatch,) = check(slots)
    assert (mismatch.first_token, mismatch.last_token) == (16, 47)
    assert (mismatch.block_ids, mismatch.found) == ((2, 7), "zeros")
    assert mismatch.found_hash is None


def test_another_requests_entries_are_traced_to_its_prefix() -> None:
    """The hash that is found is the other request's at the token whose entry lies there."""
    slots = memory()
    write(slots, MINE, TABLE)
    write(slots, OTHER, [1, 2, 7, 8])
    (mismatch,) = check(slots)
    assert (mismatch.first_token, mismatch.last_token) == (16, 47)
    assert mismatch.found_hash == OTHER.prefix_hash(17)
    assert mismatch.content.layer == LAYER
    assert mismatch.found == f"the entry of prefix {OTHER.prefix_hash(17):016x}, heads 0 to 1"


def test_entries_of_different_requests_are_different_runs() -> None:
    """Else the report would name the first one's owner for both."""
    slots = memory()
    write(slots, MINE, TABLE)
    third = TokenStream(range(900, 964))
    write(slots, OTHER, [1, 2, 6, 8])
    write(slots, third, [0, 4, 7, 1])
    first, second = check(slots)
    assert (first.first_token, first.last_token) == (16, 31)
    assert (second.first_token, second.last_token) == (32, 47)
    assert second.found_hash == third.prefix_hash(33)


def test_swapped_blocks_are_different_runs_of_the_requests_own_entries() -> None:
    """Bytes of the right request in the wrong order are as wrong as any."""
    slots = memory()
    write(slots, MINE, [5, 7, 2, 3])
    first, second = check(slots)
    assert (first.found_hash, second.found_hash) == (MINE.prefix_hash(33), MINE.prefix_hash(17))


def test_entries_of_another_layer_or_rank_are_named_if_they_are_candidates() -> None:
    """An offset that is off by a layer shows as that layer's bytes."""
    slots = memory()
    other_layer, other_rank = entry_salts(OTHER_LAYER, HEADS), entry_salts(LAYER, range(2, 4))
    write(slots, MINE, TABLE)
    slots[5] = entry_bytes(MINE.hashes[:16], other_layer, 16)
    slots[7] = entry_bytes(MINE.hashes[32:48], other_rank, 16)
    (unknown, _) = check(slots)
    assert unknown.content.kind == "unknown"
    layer, rank = check(slots, candidates=Candidates([other_layer, other_rank]))
    assert (layer.content.layer, layer.found_hash) == (OTHER_LAYER, MINE.prefix_hash(1))
    assert layer.found.endswith(f"in {OTHER_LAYER}, heads 0 to 1")
    assert (rank.content.layer, rank.content.heads) == (LAYER, range(2, 4))


def test_single_words_are_told_apart_by_the_known_hashes() -> None:
    """A lone word could be an entry of any layer, so only a known hash proves that it is one."""
    one_head = range(1)
    own, other = entry_salts(LAYER, one_head), entry_salts(OTHER_LAYER, one_head)
    slots = memory(8)[:, :, :1]
    write(slots, MINE, TABLE, own)
    slots[5] = entry_bytes(MINE.hashes[:16], other, 8)
    slots[3, 0] = 0xAB
    known = np.sort(np.concatenate([MINE.hashes, OTHER.hashes]))
    moved, garbage = check(slots, own, candidates=Candidates([other], known))
    assert (moved.content.layer, moved.found_hash) == (OTHER_LAYER, MINE.prefix_hash(1))
    assert garbage.content.kind == "unknown"


def test_only_the_blocks_asked_for_are_compared() -> None:
    """Checks are incremental: what has not changed since the last one is left out."""
    slots = memory()
    assert [m.block_ids for m in check(slots, indices=[1, 3])] == [(2,), (3,)]
    assert check(slots, indices=[]) == []


def test_the_digest_tells_different_wrong_bytes_apart() -> None:
    """The wrong token is a function of what was read, not of the fact that it was wrong."""
    slots = memory()
    write(slots, MINE, TABLE)
    digests = []
    for value in (1, 2):
        slots[2] = value
        digests += [mismatch.digest for mismatch in check(slots)]
    slots[2] = 1
    assert check(slots)[0].digest == digests[0]
    assert digests[0] != digests[1]
    assert 0 not in digests


@pytest.mark.parametrize("layout", [layout.name for layout in KVCacheLayout])
@pytest.mark.parametrize(("name", "tp_size"), [("llama", 1), ("llama", 2), ("deepseek-mla", 1)])
def test_a_cache_written_through_its_slots_is_right_in_every_layout(
    name: str, tp_size: int, layout: str
) -> None:
    """Writing one layer never disturbs another, and a damaged block is found where it is."""
    workers, _, _ = plan_preset(name, tp_size=tp_size, layout=layout)
    caches = KVCaches.allocate(workers[0], layout, Arena())
    preset = get_preset(name)
    block_size = preset.block_size
    heads = preset.kv_heads_of_rank(tp_size, 0)
    salts = {layer: entry_salts(layer, heads) for layer in caches.layers}
    stream, table = TokenStream(range(3 * block_size - 5)), np.array([11, 4, 9])
    indices, offsets = np.divmod(np.arange(len(stream)), block_size)
    for layer in caches.layers:
        slots = caches.slots(layer)
        slots[table[indices], offsets] = entry_bytes(stream.hashes, salts[layer], slots.shape[-1])
    caches.views[caches.layers[1]][4].zero_()
    found = [
        mismatch
        for layer in caches.layers
        for mismatch in find_mismatches(
            caches.slots(layer),
            salts[layer],
            stream.hashes,
            block_ids=table,
            indices=range(3),
            block_size=block_size,
        )
    ]
    assert [(m.layer, m.block_ids, m.found) for m in found] == [(caches.layers[1], (4,), "zeros")]
