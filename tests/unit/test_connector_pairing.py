"""Properties of the connector's payload and pairing (R6 to R11, R13), over random layouts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.admission import NOTHING, STATE_ALONE, Answer, promise, span_of
from connector.core.errors import MalformedPayload
from connector.core.groups import Group, GroupKind, StateShape, TransferGroups
from connector.core.pairing import (
    LoadMode,
    check_remote,
    first_positions,
    plan_read,
    show_state,
)
from connector.core.payload import NULL_BLOCK, decode, encode, pad_dropped_token
from connector.core.zeroing import without_destinations

BLOCKS = 4096


def full(block_size: int = 16) -> Group:
    return Group(GroupKind.FULL, ("attn",), block_size)


def window(size: int, block_size: int = 16) -> Group:
    return Group(GroupKind.WINDOW, ("swa",), block_size, window=size)


def ring(capacity: int = 8) -> Group:
    return Group(GroupKind.RING, ("tail",), capacity)


def state(block_size: int = 16, num_scratch: int = 0, layer: str = "kda") -> Group:
    shape = StateShape(((8, 3), (2, 4)), ("bf16", "f32"), block_size, 4096, num_scratch)
    return Group(GroupKind.STATE, (layer,), block_size, state=shape)


@dataclass
class Pool:
    """Hands out block ids that are never used twice."""

    next_id: int

    def take(self, count: int) -> list[int]:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        return ids


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def blocks_of(group: Group, num_tokens: int, pool: Pool, hit: int = 0) -> list[int]:
    """What vLLM's managers hold for a request with ``num_tokens`` computed ones."""
    if group.kind is GroupKind.RING:
        return pool.take(1)
    count = cdiv(num_tokens, group.block_size)
    if group.kind is GroupKind.STATE:
        return [NULL_BLOCK] * (count - 1) + pool.take(1 + group.num_scratch)
    skipped = 0
    if group.window is not None:
        skipped = max(0, num_tokens - group.window + 1) // group.block_size
    return [NULL_BLOCK] * skipped + pool.take(count - skipped)


@st.composite
def layouts(draw: st.DrawFn) -> TransferGroups:
    block_size = draw(st.sampled_from([1, 4, 16, 48]))
    scratch = draw(st.integers(0, 3))
    groups = [full(block_size)]
    kind = draw(st.sampled_from(["plain", "windows", "states", "glm"]))
    if kind == "windows":
        groups += [window(w, block_size) for w in draw(st.lists(st.integers(2, 200), max_size=3))]
    if kind in ("states", "glm"):
        num_states = draw(st.integers(1, 4))
        groups += [state(block_size, scratch, f"kda{n}") for n in range(num_states)]
    if kind == "glm":
        groups.append(ring())
    return TransferGroups(tuple(draw(st.permutations(groups))))


def hand_over(groups: TransferGroups, prompt: int) -> list[list[int]]:
    """The payload for a prompt, as a producer makes it."""
    drops = groups.producer_drops_last_token
    held = [blocks_of(g, prompt - 1 if drops else prompt, Pool(1000)) for g in groups.groups]
    payload = encode(groups, held)
    return pad_dropped_token(groups, payload, prompt) if drops else payload


@pytest.mark.requirement("R6", "R7", "R8")
@given(layouts(), st.integers(2, 400), st.data(), st.sampled_from(["async", "sync"]))
def test_every_promised_position_is_read_from_its_own_place(
    groups: TransferGroups, prompt: int, data: st.DataObject, mode: LoadMode
) -> None:
    """Our block at a position gets the producer's block of that position; the cached prefix and
    what lies behind the promise stay untouched; nothing is written twice."""
    unit = groups.groups[0].block_size
    hit = data.draw(st.integers(0, (prompt - 2) // unit)) * unit if prompt > 2 else 0
    answer = promise(prompt, hit, mode, is_refused=False)
    if answer.num_tokens == 0:
        return
    span = span_of(prompt, hit, answer.num_tokens)
    assert span.promised == prompt - 1
    remote = decode(groups, hand_over(groups, prompt), num_blocks=BLOCKS)
    firsts = first_positions(groups, remote, prompt)
    check_remote(groups, remote, firsts, span)
    computed = prompt - 1 if mode == "async" else prompt
    local = [blocks_of(g, computed, Pool(1)) for g in groups.groups]
    if mode == "sync":
        for group, ids in zip(groups.groups, local, strict=True):
            if group.kind is GroupKind.STATE:  # the slot that vLLM allocates for external tokens
                ids[(span.promised - 1) // group.block_size] = 900
    plan = plan_read(groups, local, remote, firsts, span, mode)
    for wire_index, index in enumerate(groups.wire_order):
        group, pairs = groups.groups[index], plan.pairs[wire_index]
        mine = [a for a, _ in pairs]
        assert NULL_BLOCK not in mine
        assert len(mine) == len(set(mine))
        positions = [local[index].index(a) for a in mine]
        if group.kind is GroupKind.STATE:
            assert (span.promised - 1) // group.block_size in positions
            assert all(other == remote[wire_index][0] for _, other in pairs)
        elif group.kind is not GroupKind.RING:
            low = hit
            if group.window is not None:
                low = max(low, span.promised - group.window + 1)
            assert positions == list(
                range(low // group.block_size, cdiv(span.promised, group.block_size))
            )
            theirs = [remote[wire_index][p - firsts[wire_index]] for p in positions]
            assert [b for _, b in pairs] == theirs


@pytest.mark.requirement("R9")
@given(layouts().filter(lambda g: g.has_state), st.integers(1, 20), st.booleans())
def test_a_state_alone_is_read_behind_the_whole_blocks(
    groups: TransferGroups, num_blocks: int, is_sync: bool
) -> None:
    """All attention blocks are here: only ring and state are read, the state into the block of the
    one token that vLLM computes, and vLLM's copy from the block before finds it there."""
    unit = max(group.block_size for group in groups.groups if group.kind is GroupKind.STATE)
    hit = num_blocks * unit
    prompt = hit + 1
    mode: LoadMode = "sync" if is_sync else "async"
    answer = promise(prompt, hit, mode, is_refused=False, lacks_state=True)
    assert answer == STATE_ALONE
    span = span_of(prompt, hit, answer.num_tokens)
    remote = decode(groups, hand_over(groups, prompt), num_blocks=BLOCKS)
    firsts = first_positions(groups, remote, prompt)
    check_remote(groups, remote, firsts, span)
    local = [blocks_of(g, prompt, Pool(1 + 500 * n)) for n, g in enumerate(groups.groups)]
    plan = plan_read(groups, local, remote, firsts, span, "async")
    told = [list(ids) for ids in local]
    show_state(groups, told, hit)
    for wire_index, index in enumerate(groups.wire_order):
        group, pairs = groups.groups[index], list(plan.pairs[wire_index])
        before, after = (hit - 1) // group.block_size, hit // group.block_size
        if group.kind is GroupKind.STATE:
            assert pairs == [(local[index][after], remote[wire_index][0])]
            assert told[index][before] == told[index][after] == pairs[0][0]
            assert told[index][:before] + told[index][after:] == (
                local[index][:before] + local[index][after:]
            )
        else:
            assert len(pairs) == (group.kind is GroupKind.RING)
            assert told[index] == local[index]


@pytest.mark.requirement("R7", "R11")
def test_the_window_keeps_what_the_consumers_last_token_sees() -> None:
    """Where a window's edge ends a block, the producer's dropped token saves that block."""
    groups = TransferGroups((window(64), full()))
    for prompt in range(2, 200):
        remote = hand_over(groups, prompt)
        span = span_of(prompt, 0, prompt - 1)
        check_remote(groups, remote, first_positions(groups, remote, prompt), span)


@pytest.mark.requirement("R8", "R9")
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_partial_hit_pairs_suffixes_and_an_attention_hit_leaves_ring_and_state(
    mode: LoadMode,
) -> None:
    """Of 1,501 tokens, 640 are cached: two blocks are read; with more cached, fewer."""
    groups = TransferGroups((state(640, 1, "k0"), state(640, 1, "k1"), full(640), ring()))
    prompt = 1501
    remote = hand_over(groups, prompt)
    local = [blocks_of(g, prompt - 1, Pool(1)) for g in groups.groups]
    firsts = first_positions(groups, remote, prompt)
    plan = plan_read(groups, local, remote, firsts, span_of(prompt, 640, 860), mode)
    assert [len(pairs) for pairs in plan.pairs] == [2, 1, 1, 1]
    plan = plan_read(groups, local, remote, firsts, span_of(prompt, 1280, 220), mode)
    assert [len(pairs) for pairs in plan.pairs] == [1, 1, 1, 1]
    prompt = 1281
    remote = hand_over(groups, prompt)
    local = [blocks_of(g, prompt - 1, Pool(1)) for g in groups.groups]
    plan = plan_read(groups, local, remote, firsts, span_of(prompt, 1280, 0), mode)
    assert [len(pairs) for pairs in plan.pairs] == [0, 1, 1, 1]


@pytest.mark.requirement("R9", "R11")
def test_promises() -> None:
    """All but the last token; nothing for one token or a full hit; a refused load waits."""
    assert promise(100, 32, "async", is_refused=False) == Answer(67, True)
    assert promise(100, 32, "sync", is_refused=False) == Answer(67, False)
    assert promise(100, 32, "sync", is_refused=True) == Answer(67, True)
    assert promise(1, 0, "async", is_refused=False) == NOTHING
    assert promise(97, 96, "async", is_refused=True) == NOTHING
    assert promise(97, 96, "async", is_refused=True, lacks_state=True) == NOTHING
    assert promise(97, 96, "sync", is_refused=False, lacks_state=True) == Answer(1, True)


GLM = TransferGroups((state(layer="k0"), full(), ring(), state(layer="k1")))


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "remote_block_ids is missing"),
        ("blocks", "is a str; expected a list for each group"),
        ([[1], [2], [3]], "has 3 groups, but this model transfers 4"),
        ([[1], [2], [3], 4], r"remote_block_ids\[3\], recurrent state group \(k1\): is a int"),
        ([[1, "2"], [2], [3], [4]], "'2' is not a block id"),
        ([[1, True], [2], [3], [4]], "True is not a block id"),
        ([[1, -2], [2], [3], [4]], "block id -2 must be at least 0 and below 50"),
        ([[1, 50], [2], [3], [4]], "block id 50 must be at least 0 and below 50"),
        ([[5, 5], [2], [3], [4]], "block id 5 is there twice"),
        ([[1], [], [3], [4]], "holds exactly one block a request, got 0"),
        ([[1], [2], [3, 4], [4]], "holds exactly one block a request, got 2"),
    ],
)
def test_a_malformed_payload_names_the_group(raw: object, message: str) -> None:
    """Every kind of malformation, before anything is read."""
    with pytest.raises(MalformedPayload, match=message):
        decode(GLM, raw, num_blocks=50)


@pytest.mark.requirement("R8", "R10")
@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ([], "producer has no block at position 0"),
        ([1], "producer has no block at position 1"),
        ([1, 0], "producer no longer has the block at position 1"),
    ],
)
def test_a_needed_block_that_is_missing_is_an_error(attention: list[int], message: str) -> None:
    """An empty or short list and a null where data is promised."""
    remote = decode(GLM, [attention, [2], [3], [4]])
    with pytest.raises(MalformedPayload, match=message):
        check_remote(GLM, remote, [0, 0, 0, 0], span_of(31, 0, 30))


@pytest.mark.requirement("R12")
@given(st.lists(st.integers(1, 60)), st.sets(st.integers(1, 60)))
def test_only_destinations_are_taken_out_of_zeroing(ids: list[int], read: set[int]) -> None:
    """Order and all other blocks stay."""
    assert without_destinations(ids, read) == [b for b in ids if b not in read]


@pytest.mark.requirement("R6", "R13")
def test_every_layer_reads_its_own_groups_blocks() -> None:
    """Attention groups come first on the wire, states after them, each in transfer order."""
    assert GLM.wire_order == (1, 2, 0, 3)
    assert GLM.payload_index_by_layer() == {"attn": 0, "tail": 1, "k0": 2, "k1": 3}
