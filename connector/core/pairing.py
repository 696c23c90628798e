"""Which of the producer's blocks goes into which of ours, by token position.

Block i of a group covers tokens [i * B, (i + 1) * B) of the request, B being the group's own
block size. The consumer has all of the request's blocks, its cached prefix included, from
position 0; the producer's list of a sliding window begins later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from connector.core.errors import MalformedPayload
from connector.core.groups import Group, GroupKind, TransferGroups
from connector.core.payload import NULL_BLOCK, BlockLists

LoadMode = Literal["async", "sync"]


class Span(NamedTuple):
    """The tokens that a load provides.

    Args:
        local_hit: tokens at the front that are in our own cache.
        promised: tokens that vLLM counts as computed when the load is done: all but the last, or
            all, the last of which it takes back, where only the state is loaded.
        prompt: tokens of the prompt.
    """

    local_hit: int
    promised: int
    prompt: int

    @property
    def read_to(self) -> int:
        """Where the tokens end that the producer has computed for us."""
        return min(self.promised, self.prompt - 1)


class Plan(NamedTuple):
    """What one request reads: for each payload entry, block by block, theirs into ours.

    Args:
        ours: our blocks.
        theirs: the producer's, as many.
    """

    ours: tuple[Sequence[int], ...] = ()
    theirs: tuple[Sequence[int], ...] = ()

    @property
    def destinations(self) -> frozenset[int]:
        """All blocks of ours that are written, in any group."""
        return frozenset().union(*self.ours)

    @property
    def pairs(self) -> list[list[tuple[int, int]]]:
        """(our block, the producer's) for each payload entry."""
        return [list(zip(*both, strict=True)) for both in zip(self.ours, self.theirs, strict=True)]


def first_positions(groups: TransferGroups, remote: BlockLists, prompt: int) -> list[int]:
    """The position of the first block of each of the producer's lists.

    A window's list ends with the block of the last token that the list is for: the last one of
    the prompt, or the one before it where the model has a state and the producer dropped one.
    """
    covered = prompt - 1 if groups.has_state else prompt
    return [
        max(0, -(-covered // group.block_size) - len(ids)) if group.window is not None else 0
        for group, ids in zip(groups.on_wire, remote, strict=True)
    ]


def check_remote(
    groups: TransferGroups, remote: BlockLists, firsts: Sequence[int], span: Span
) -> None:
    """See that the producer has every block that a load of ``span`` needs.

    Raises:
        MalformedPayload: naming the group and the position.
    """
    for group, blocks, first in zip(groups.on_wire, remote, firsts, strict=True):
        _range_of(group, "producer", blocks, _positions(group, span), first)


def plan_read(
    groups: TransferGroups,
    local: Sequence[Sequence[int]],
    remote: BlockLists,
    firsts: Sequence[int],
    span: Span,
    mode: LoadMode,
) -> Plan:
    """Pair the blocks of every group.

    Args:
        groups: of both sides.
        local: all our blocks, one list for each group in transfer order.
        remote: the producer's payload, checked by `payload.decode`.
        firsts: the position of the first block of each payload entry.
        span: of the load.
        mode: decides which slot of a state the first forward pass reads.

    Raises:
        MalformedPayload: naming group, side and position where a block is missing.
    """
    if len(local) != len(groups):
        raise ValueError(f"expected {len(groups)} block lists, one a group, got {len(local)}")
    both = [
        _pair(groups.groups[index], local[index], theirs, first, span, mode)
        for index, theirs, first in zip(groups.wire_order, remote, firsts, strict=True)
    ]
    return Plan(tuple(ours for ours, _ in both), tuple(theirs for _, theirs in both))


def _pair(
    group: Group,
    local: Sequence[int],
    remote: list[int],
    first: int,
    span: Span,
    mode: LoadMode,
) -> tuple[Sequence[int], Sequence[int]]:
    """Our blocks and as many of the producer's."""
    if group.kind is GroupKind.STATE:
        slots = _state_positions(group, len(local), span, mode)
        ours = [_block(group, "consumer", local, position) for position in slots]
        return ours, [_block(group, "producer", remote, 0)] * len(ours)
    positions = _positions(group, span)
    return (
        _range_of(group, "consumer", local, positions, 0),
        _range_of(group, "producer", remote, positions, first),
    )


def _positions(group: Group, span: Span) -> range:
    """The positions that a load reads; of a ring or a state, its only block."""
    if group.kind in (GroupKind.RING, GroupKind.STATE):
        return range(1)
    token = span.local_hit
    if group.window is not None:
        token = max(token, span.read_to - group.window + 1)
    return range(token // group.block_size, -(-span.read_to // group.block_size))


def _state_positions(group: Group, num_local: int, span: Span, mode: LoadMode) -> list[int]:
    """Positions of the slots that get the state.

    The state after n tokens belongs to the block of token n - 1. vLLM's worker copies it from
    there to the block of the step's last token before the connector is called, so a synchronous
    load comes too late for the copy and fills both: the one that the forward pass reads, and the
    one that the prefix cache lists already.
    """
    position = (span.promised - 1) // group.block_size
    running = num_local - 1 - group.num_scratch
    return sorted({position, running}) if mode == "sync" and running >= 0 else [position]


def show_state(groups: TransferGroups, table: Sequence[list[int]], num_computed: int) -> None:
    """Let vLLM's state copy find a state that was loaded behind whole blocks.

    A state that is all there is to load lies in the block of the promised token, the first of a
    new block. vLLM's worker takes the state after ``num_computed`` tokens to be in the block
    before, which the scheduler left null, and copies it over ours before the first forward pass
    (v1/worker/gpu/model_states/mamba_hybrid.py:122 and v1/worker/mamba_utils.py:1495). With our
    block named in both places it copies the state to where it is.

    Args:
        groups: of the request.
        table: blocks of the request as the worker is told, one list a group in transfer order;
            changed in place. The scheduler keeps its own.
        num_computed: tokens that the first forward pass finds computed, whole blocks.
    """
    for group, ids in zip(groups.groups, table, strict=True):
        if group.kind is GroupKind.STATE:
            target = num_computed // group.block_size
            assert num_computed % group.block_size == 0
            assert ids[target - 1] == NULL_BLOCK
            ids[target - 1] = ids[target]


def _range_of(
    group: Group, side: str, blocks: Sequence[int], positions: range, first: int
) -> Sequence[int]:
    """The blocks at ``positions``, where ``blocks`` begins with that at ``first``."""
    begin, end = positions.start - first, positions.stop - first
    found = blocks[begin:end] if begin >= 0 and end <= len(blocks) else ()
    if len(found) != len(positions) or NULL_BLOCK in found:
        return [_block(group, side, blocks, i - first, i) for i in positions]
    return found


def _block(
    group: Group, side: str, blocks: Sequence[int], index: int, position: int | None = None
) -> int:
    position = index if position is None else position
    if not 0 <= index < len(blocks):
        raise MalformedPayload(
            f"{group.name}: the {side} has no block at position {position} ({len(blocks)} blocks)"
        )
    if blocks[index] == NULL_BLOCK:
        raise MalformedPayload(
            f"{group.name}: the {side} no longer has the block at position {position}"
        )
    return blocks[index]
