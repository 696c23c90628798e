from __future__ import annotations

import numpy as np
import pytest
import torch

from sim.fabric.memory import Access, MemoryRegion, copy_segments, gather, scatter


def _region(tensor: torch.Tensor) -> MemoryRegion:
    return MemoryRegion(tensor.data_ptr(), tensor.numel(), key=1, owner="e", node="n")


def test_a_region_is_the_tensor_s_own_memory() -> None:
    """A write through the region is a write to the tensor."""
    tensor = torch.zeros(16, dtype=torch.uint8)
    _region(tensor).view[3] = 9
    assert int(tensor[3]) == 9


def test_an_invalidated_region_allows_nothing() -> None:
    """Whatever it was registered for."""
    region = _region(torch.zeros(16, dtype=torch.uint8))
    assert region.allows(Access.REMOTE_READ | Access.LOCAL_WRITE)
    region.invalidate()
    assert not region.allows(Access.REMOTE_READ)


@pytest.mark.parametrize("sizes", [[64] * 5, [64] * 500, [0, 3] * 100, [9000] * 40, [1, 2, 3] * 70])
def test_copying_segments_is_copying_each(sizes: list[int]) -> None:
    """Whatever the number and mix of sizes, the result is that of a loop."""
    rng = np.random.default_rng(1)
    source = rng.integers(0, 255, 1 << 20, np.uint8)
    column = np.array(sizes)
    slots = rng.permutation(len(sizes))
    here, there = slots * 9001, rng.permutation(len(sizes)) * 9001 + 7
    expected, found = np.zeros(5 << 20, np.uint8), np.zeros(5 << 20, np.uint8)
    source = np.resize(source, 5 << 20)
    for begin, to, size in zip(here, there, sizes, strict=True):
        expected[to : to + size] = source[begin : begin + size]
    copy_segments(source, here, found, there, column)
    assert np.array_equal(expected, found)
    again = np.zeros_like(found)
    scatter(gather(source, here, column), again, there, column)
    assert np.array_equal(expected, again)
