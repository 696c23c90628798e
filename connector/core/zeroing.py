"""Keeping vLLM's zeroing of new blocks off the blocks that a read fills."""

from __future__ import annotations

from collections.abc import Collection


def without_destinations(to_zero: list[int], destinations: Collection[int]) -> list[int]:
    """The blocks that are still zeroed.

    Zeroing is queued on the device and a read does not wait for it, so a destination in this list
    may be wiped after the bytes have landed. All other blocks stay, recurrent state included.
    """
    return [block_id for block_id in to_zero if block_id not in destinations]
