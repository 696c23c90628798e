from __future__ import annotations

import pytest

from sim.engine.block_runs import runs


@pytest.mark.parametrize(
    ("block_ids", "expected"),
    [
        ([], []),
        ([7], [[7, 7]]),
        ([3, 2, 1], [[1, 3]]),
        ([1, 2, 5, 6, 9], [[1, 2], [5, 6], [9, 9]]),
        ([0, 0, 1], [[0, 1]]),
    ],
)
def test_blocks_enter_the_log_as_ascending_runs(
    block_ids: list[int], expected: list[list[int]]
) -> None:
    """A prompt of 100,000 tokens holds thousands of blocks, mostly neighbours."""
    assert runs(block_ids) == expected
