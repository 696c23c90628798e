"""When the recurrent state of a request moves from one block to another: vLLM's "align" mode.

Before a pass that ends in another block than the last one did, the state is copied there. After a
step that accepted drafts across the end of a block, the state at that end is copied to the block
that prefix caching will find it in. The decisions are those of
``preprocess_mamba_align_fused_kernel`` and ``postprocess_mamba_fused_kernel``
(vllm/v1/worker/mamba_utils.py), which run on a GPU only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StateCopy:
    """Places in a block table; the state is ``offset`` tokens behind the first of the source."""

    source: int
    target: int
    offset: int


def column_of(num_tokens: int, block_size: int) -> int:
    """The place in the table of the block with the state after ``num_tokens``; -1 without any."""
    return (num_tokens - 1) // block_size


def copy_before(column: int, num_accepted: int, end: int, block_size: int) -> StateCopy | None:
    """What to copy before a pass.

    Args:
        column: where the running state was after the last pass; -1 without any.
        num_accepted: tokens of the last step that count, at least 1.
        end: tokens after the pass, drafts included.
        block_size: tokens of a block.
    """
    target = column_of(end, block_size)
    if column < 0 or column == target:
        return None
    return StateCopy(column, target, num_accepted - 1)


def copy_after(
    column: int, num_accepted: int, num_computed: int, block_size: int
) -> StateCopy | None:
    """What to copy after a step, perhaps a block to itself and without an offset, which is nothing.

    Args:
        column: where the running state is.
        num_accepted: tokens of the step that count, at least 1.
        num_computed: tokens after the step that count.
        block_size: tokens of a block.
    """
    in_first_block = num_computed - num_accepted + 1
    aligned = num_computed // block_size * block_size
    if aligned < in_first_block:
        return None
    return StateCopy(column, aligned // block_size - 1, aligned - in_first_block)
