"""Block ids as runs: how the event log keeps them, because a long prompt holds thousands."""

from __future__ import annotations

from collections.abc import Sequence


def runs(block_ids: Sequence[int]) -> list[list[int]]:
    """The ids in ascending order as inclusive runs [first, last]."""
    found: list[list[int]] = []
    for block in sorted(block_ids):
        if found and block <= found[-1][1] + 1:
            found[-1][1] = block
        else:
            found.append([block, block])
    return found
