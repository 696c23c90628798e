"""What the model of rings and entries assumes of vLLM's kernels, asked of these kernels.

They run as the Python functions that they are, with just enough of Triton's language. The key of a
token is a unit vector of its own, so a pooled key shows which tokens it was made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import glm_layers  # noqa: F401  # makes the package importable without torchvision
import numpy as np
import pytest
import vllm.models.glm5next.amd.ops.kpool_compress as kernels
from fake_triton import Language, Pointer
from hypothesis import given, settings
from hypothesis import strategies as st

SIZE = 128
BLOCK = 3  # the request's ring


class Value(np.ndarray[Any, Any]):
    """An array that can be told to have another type, and has it already."""

    def to(self, dtype: Any) -> Value:
        return self


def _value(array: Any) -> Value:
    return np.asarray(array).view(Value)


class Floats(Language):
    """What these kernels use beyond integers, loads and stores."""

    float32 = bfloat16 = int64 = None

    def load(self, pointer: Pointer, mask: Any = None, other: Any = 0) -> Value:
        return _value(super().load(pointer, mask, other))

    def full(self, shape: tuple[int, ...], value: float, dtype: Any) -> Value:
        return _value(np.full(shape, value))

    def where(self, condition: Any, one: Any, other: Any) -> Value:
        return _value(np.where(condition, one, other))

    def maximum(self, one: Any, other: Any) -> Value:  # type: ignore[override]
        return _value(np.maximum(one, other))

    def minimum(self, one: Any, other: Any) -> Value:
        return _value(np.minimum(one, other))

    range = static_range = staticmethod(range)
    exp, exp2, log2, ceil, abs = map(staticmethod, (np.exp, np.exp2, np.log2, np.ceil, np.abs))

    def max(self, values: Any, axis: int) -> Any:
        return np.max(values, axis)


@contextmanager
def program(number: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "tl", Floats(number))
        patch.setattr(kernels, "_hadamard128", lambda x: x)
        patch.setattr(
            kernels, "_cache_k_offset", lambda loc, offs, size, shuffle: loc * size + offs
        )
        yield


def keys(positions: Any) -> Any:
    return np.eye(SIZE)[np.asarray(positions, dtype=int)]


def empty_rings(size: int) -> Any:
    return np.zeros((BLOCK + 1, 2, size, SIZE))


def tokens_in(ring: Any) -> dict[int, int]:
    """By place in the request's ring, the token whose key is there."""
    places = np.flatnonzero(ring[BLOCK, 0].any(axis=1))
    return {int(place): int(np.argmax(ring[BLOCK, 0, place])) for place in places}


@settings(max_examples=40)
@given(st.integers(0, 60), st.integers(1, 40), st.sampled_from([4, 8, 16]))
def test_a_prefill_keeps_its_last_tokens(start: int, count: int, size: int) -> None:
    """As many as are pooled, each at its position modulo the ring's size."""
    pooled, ring = 4, empty_rings(size)
    positions = np.arange(start, start + count)
    slots = BLOCK * size + positions % size
    for number in range(count):
        with program(number):
            kernels._kpool_tail_seed_kernel(
                Pointer(keys(positions).reshape(-1)),
                Pointer(np.zeros(count * SIZE)),
                Pointer(slots),
                Pointer(ring.reshape(-1)),
                count,
                TAIL_BLOCK_ELEMS=2 * size * SIZE,
                KPOOL_HEAD=size * SIZE,
                HEAD_DIM=SIZE,
                KPOOL=pooled,
                RING=size,
                BLOCK_D=SIZE,
            )
    assert tokens_in(ring) == {int(p) % size: int(p) for p in positions[-pooled:]}


@settings(max_examples=40)
@given(st.integers(0, 60), st.integers(1, 8), st.data())
def test_a_decode_takes_the_group_out_of_the_ring_and_keeps_all_its_tokens(
    start: int, count: int, data: st.DataObject
) -> None:
    """For one token and for one with drafts: the entry of each group that it completes is made of
    that group's tokens, though nothing else is right in the ring but the tokens of the group that
    was begun before."""
    pooled = 4
    size = data.draw(st.sampled_from([s for s in (4, 8, 16) if s >= pooled + count - 1]))
    ring, positions = empty_rings(size), np.arange(start, start + count)
    ring[BLOCK, 0] = keys([127] * size)  # of a token that is in no group
    for position in range(start - start % pooled, start):
        ring[BLOCK, 0, position % size] = keys(position)
    ends = (positions + 1) % pooled == 0
    entries, scales = np.zeros(32 * SIZE), np.zeros(64)
    with program(0):
        kernels._kpool_decode_update_batched_kernel(
            Pointer(entries),
            Pointer(scales),
            Pointer(ring.reshape(-1)),
            Pointer(BLOCK * size + positions % size),
            Pointer(keys(positions).reshape(-1)),
            count * SIZE,
            SIZE,
            Pointer(np.zeros(count * SIZE)),
            count * SIZE,
            SIZE,
            Pointer(np.zeros(pooled * SIZE)),
            SIZE,
            Pointer(np.where(ends, positions // pooled, -1)),
            Pointer(positions),
            count,
            PAGE_SIZE=32,
            BUF_NUMEL_PER_PAGE=0,
            POOL_SIZE=pooled,
            RING=size,
            TAIL_BLOCK_ELEMS=2 * size * SIZE,
            KPOOL_HEAD=size * SIZE,
            HEAD_DIM=SIZE,
            S_OFFSET_NBYTES_IN_PAGE=0,
            FP8_MAX=448.0,
            PRESHUFFLE=False,
            ROUND_SCALE=False,
            BLOCK_D=SIZE,
        )
    found = entries.reshape(-1, SIZE)
    made_of = {
        int(entry): np.flatnonzero(found[entry]).tolist()
        for entry in np.flatnonzero(found.any(axis=1))
    }
    assert made_of == {
        int(last) // pooled: list(range(last - pooled + 1, last + 1)) for last in positions[ends]
    }
    kept = tokens_in(ring)
    assert [kept[int(position) % size] for position in positions] == positions.tolist()
