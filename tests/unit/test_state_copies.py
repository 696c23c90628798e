"""When recurrent states move is decided as vLLM's own kernels decide it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import vllm.v1.worker.mamba_utils as vllm_kernels
from fake_triton import Pointer, program
from hypothesis import given
from hypothesis import strategies as st

from connector.core.groups import Group, GroupKind, StateShape, TransferGroups
from connector.core.pairing import show_state
from sim.engine.state_copies import StateCopy, column_of, copy_after, copy_before
from sim.model.presets import get_preset
from sim.model.state_content import state_bytes
from sim.model.state_window import row_hashes, state_layout
from sim.model.token_stream import TokenStream

BLOCK = 4
requests = st.lists(
    st.tuples(
        st.integers(-1, 5),  # the running state's column
        st.integers(1, 8),  # tokens accepted in the last step
        st.integers(0, 24),  # computed before
        st.integers(1, 9),  # scheduled now
    ),
    min_size=1,
    max_size=6,
)


@given(requests)
def test_before_a_pass_vllm_copies_the_same(batch: list[tuple[int, int, int, int]]) -> None:
    """``preprocess_mamba_align_fused_kernel``: source, offset, target, and the count's reset."""
    columns, accepted, computed, scheduled = (np.array(c) for c in zip(*batch, strict=True))
    starts = np.concatenate([[0], np.cumsum(scheduled)])
    source, offset = np.full(len(batch), -9), np.zeros(len(batch), dtype=int)
    state_column, count = columns.copy(), accepted.copy()
    order = np.arange(len(batch))
    with program(vllm_kernels, 0):
        vllm_kernels.preprocess_mamba_align_fused_kernel(
            *map(Pointer, (order, state_column, computed, starts, count, source, offset)),
            len(batch),
            BLOCK_SIZE=8,
            MAMBA_BLOCK_SIZE=BLOCK,
        )
    for i, (column, num_accepted, start, tokens) in enumerate(batch):
        end = start + tokens
        copy = copy_before(column, num_accepted, end, BLOCK)
        assert state_column[i] == column_of(end, BLOCK)
        # Its copying kernel leaves out what has no source or would go to itself.
        moves = source[i] >= 0 and source[i] != state_column[i]
        expected = StateCopy(source[i], state_column[i], offset[i]) if moves else None
        assert copy == expected
        assert count[i] == (1 if copy else num_accepted)


@given(st.integers(1, 9), st.integers(0, 3))
def test_a_state_that_was_loaded_alone_is_copied_to_where_it_is(
    num_blocks: int, num_drafts: int
) -> None:
    """vLLM's kernels, from the column that its worker seeds for a new request, over the table that
    the connector has changed: source and target are the block that was read, with no offset."""
    shape = StateShape(((8, 3), (2, 4)), ("bf16", "f32"), BLOCK, 4096, num_drafts)
    groups = TransferGroups((Group(GroupKind.STATE, ("kda",), BLOCK, state=shape),))
    computed = num_blocks * BLOCK
    table = [[0] * num_blocks + list(range(7, 8 + num_drafts))]
    show_state(groups, table, computed)
    seeded = (computed - 1) // BLOCK  # MambaHybridModelState.add_request
    column, count = np.array([seeded]), np.array([1])
    source, offset, order = np.array([-9]), np.array([-9]), np.array([0])
    copies: list[StateCopy] = []

    def copy(state: Any, row: Any, src: int, dst: int, bias: int, *rest: Any) -> None:
        copies.append(StateCopy(int(src), int(dst), int(bias)))

    starts = np.array([0, 1 + num_drafts])
    with pytest.MonkeyPatch.context() as patch, program(vllm_kernels, 0, 0, 0):
        vllm_kernels.preprocess_mamba_align_fused_kernel(
            *map(Pointer, (order, column, np.array([computed]), starts, count, source, offset)),
            1,
            BLOCK_SIZE=1,
            MAMBA_BLOCK_SIZE=BLOCK,
        )
        patch.setattr(vllm_kernels, "_copy_mamba_state_block", copy)
        vllm_kernels.precopy_mamba_align_fused_kernel(
            Pointer(column), Pointer(source), Pointer(offset), *[None] * 10, Pointer(order), 1,
            COPY_BLOCK_SIZE=8, CONV_STATE_DIM_FIRST=True,
        )  # fmt: skip
    assert [(table[0][c.source], table[0][c.target], c.offset) for c in copies] == [(7, 7, 0)]


def vllm_copy_after(column: int, accepted: int, computed: int) -> tuple[StateCopy | None, int]:
    """What ``postprocess_mamba_fused_kernel`` copies, and the count that it leaves behind."""
    copies: list[StateCopy] = []

    def copy(state: Any, row: Any, source: int, target: int, offset: int, *rest: Any) -> None:
        copies.append(StateCopy(source, target, offset))

    count = np.array([accepted])
    snapshot, columns, after = np.array([accepted]), np.array([column]), np.array([computed])
    with pytest.MonkeyPatch.context() as patch, program(vllm_kernels, 0, 0, 0):
        patch.setattr(vllm_kernels, "_copy_mamba_state_block", copy)
        vllm_kernels.postprocess_mamba_fused_kernel(
            Pointer(snapshot), Pointer(columns), None, Pointer(after), *[None] * 11,
            Pointer(count), Pointer(np.array([0])), 1,
            block_size=BLOCK, COPY_BLOCK_SIZE=8, CONV_STATE_DIM_FIRST=True,
            HAS_IDX_MAPPING=True, PRECOMPUTED_NEW_COMPUTED=True,
        )  # fmt: skip
    return (copies[0] if copies else None), int(count[0])


@given(st.integers(0, 30), st.integers(1, 8), st.integers(0, 7))
def test_after_a_step_vllm_copies_the_same(before: int, accepted: int, rejected: int) -> None:
    """Whatever was accepted of a step over a token and its drafts."""
    computed = before + accepted
    column = column_of(computed + rejected, BLOCK)
    expected, count = vllm_copy_after(column, accepted, computed)
    copy = copy_after(column, accepted, computed, BLOCK)
    if copy is None or (copy.source == copy.target and not copy.offset):
        assert expected is None
    else:
        assert copy == expected
    assert count == (1 if copy and copy.source == copy.target else accepted)


PIECES = get_preset("kimi-linear").state_pieces(2, 0, "reduced", 3)


def test_rows_lie_where_vllms_convolution_has_them() -> None:
    """ "DS" layout: channel after channel, the rows of a channel side by side."""
    layout = state_layout("layer", PIECES, 3, 3)
    channels = sum(piece.size for piece in PIECES if piece.tensor == "conv") // (6 * 2)
    page = np.arange(sum(piece.size for piece in PIECES))
    tensor = page[: channels * 12].reshape(channels, 6, 2)
    for row in range(6):
        np.testing.assert_array_equal(page[layout.row_bytes[row]], tensor[:, row].reshape(-1))


def test_a_shift_keeps_the_rows_behind_the_accepted_ones() -> None:
    """As vLLM's kernel shifts a window, within a page too."""
    layout = state_layout("layer", PIECES, 3, 3)
    tokens = TokenStream(range(100, 130))
    page = np.zeros(layout.matrix_bytes.stop, dtype=np.uint8)
    rows = state_bytes(row_hashes(tokens, 20, 6), layout.row)
    page[layout.row_bytes] = rows
    layout.shift(page, page, 2)
    np.testing.assert_array_equal(page[layout.row_bytes][:4], rows[2:])


def test_before_the_first_tokens_rows_are_those_of_no_token() -> None:
    """A prompt of one token has a window of three rows all the same."""
    assert row_hashes(TokenStream([7, 8]), 1, 3).tolist() == [0, 0, int(TokenStream([7]).hashes[0])]
