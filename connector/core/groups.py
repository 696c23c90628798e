"""KV cache groups as values: what a group holds, and which sets of groups can be transferred.

A request owns one list of blocks for each group. Groups are kept in *transfer order*, the order
in which vLLM lists them; on the wire attention groups come first (`TransferGroups.wire_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Literal

from connector.core.errors import UnsupportedModel

DrafterGroups = Literal["accept", "refuse"]


class GroupKind(Enum):
    """What a group's blocks hold, which decides how many there are and which are transferred."""

    FULL = "full attention"
    WINDOW = "sliding window"
    RING = "per-request ring"
    STATE = "recurrent state"

    @property
    def is_attention(self) -> bool:
        """Rings count as attention: they hold keys, not a state."""
        return self is not GroupKind.STATE


@dataclass(frozen=True)
class StateShape:
    """The states in one block of a recurrent group.

    Args:
        shapes: of each state, in elements.
        dtypes: of each state, by name.
        block_size: tokens that a block spans.
        page_bytes: of a block, padding included.
        num_scratch: slots for speculative tokens behind the running one.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    block_size: int
    page_bytes: int
    num_scratch: int


@dataclass(frozen=True)
class Group:
    """One transferable cache group.

    Args:
        kind: of all its layers.
        layers: names, in vLLM's order; the scheduler half knows them too.
        block_size: tokens in a block; for a ring, its capacity.
        window: tokens that a query sees, for a sliding window.
        state: for a recurrent group.
        is_drafter: whether all its layers belong to a drafter, as far as is known: the worker sees
            every layer, the scheduler the first.
    """

    kind: GroupKind
    layers: tuple[str, ...]
    block_size: int
    window: int | None = None
    state: StateShape | None = None
    is_drafter: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise UnsupportedModel(f"{self.name} has a block size of {self.block_size} tokens")
        if (self.kind is GroupKind.WINDOW) != (self.window is not None):
            raise UnsupportedModel(f"{self.name} is a {self.kind.value} with window {self.window}")
        if (self.kind is GroupKind.STATE) != (self.state is not None):
            raise UnsupportedModel(f"{self.name} is a {self.kind.value} with state {self.state}")

    @property
    def name(self) -> str:
        """For messages: the kind and the first layer."""
        first = self.layers[0] if self.layers else "no layers"
        more = f" and {len(self.layers) - 1} more" if len(self.layers) > 1 else ""
        return f"{self.kind.value} group ({first}{more})"

    @property
    def num_scratch(self) -> int:
        return self.state.num_scratch if self.state else 0

    def clip_length(self) -> int | None:
        """Blocks of a sliding window that are handed over; None where all are.

        One more than the window needs, because it may begin inside a block.
        """
        return None if self.window is None else -(-self.window // self.block_size) + 1


@dataclass(frozen=True)
class TransferGroups:
    """All groups that are transferred for a request, in transfer order."""

    groups: tuple[Group, ...]

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def wire_order(self) -> tuple[int, ...]:
        """Transfer-order index of each payload entry: attention groups, then state groups."""
        indices = range(len(self.groups))
        attention = [i for i in indices if self.groups[i].kind.is_attention]
        states = [i for i in indices if not self.groups[i].kind.is_attention]
        return (*attention, *states)

    @cached_property
    def on_wire(self) -> tuple[Group, ...]:
        return tuple(self.groups[i] for i in self.wire_order)

    @cached_property
    def has_state(self) -> bool:
        return any(group.kind is GroupKind.STATE for group in self.groups)

    @cached_property
    def has_window(self) -> bool:
        return any(group.kind is GroupKind.WINDOW for group in self.groups)

    @cached_property
    def has_one_attention(self) -> bool:
        """Whether all attention is full and of one spec, so that all of it has one local hit."""
        attention = [g.kind for g in self.groups if g.kind not in (GroupKind.STATE, GroupKind.RING)]
        return attention == [GroupKind.FULL]

    @property
    def producer_drops_last_token(self) -> bool:
        """Whether a producer computes one token less than the prompt has.

        A state cannot be taken back by a token, and a window would be one token further than the
        consumer, which computes the last token itself, needs it.
        """
        return self.has_state or self.has_window

    def payload_index_by_layer(self) -> dict[str, int]:
        """Which payload entry a layer reads; every layer reads its own group's."""
        return {
            layer: payload_index
            for payload_index, group in enumerate(self.on_wire)
            for layer in group.layers
        }


def check_transferable(groups: TransferGroups, drafter_groups: DrafterGroups) -> list[str]:
    """Refuse sets of groups that cannot be transferred; return warnings for the others.

    There is no list of speculative methods. A drafter whose layers are in the target's groups is
    transferred with them, whatever it is called, and the target verifies each of its drafts, so
    wrong drafts could only cost time.

    Raises:
        UnsupportedModel: naming the groups, or the field that differs.
    """
    if not groups.groups:
        raise UnsupportedModel("the model has no cache group that takes part in KV transfer")
    if not any(group.kind in (GroupKind.FULL, GroupKind.WINDOW) for group in groups.groups):
        raise UnsupportedModel(
            "at least one attention group has to be transferred beside recurrent state; "
            f"the model's groups are: {', '.join(group.name for group in groups.groups)}"
        )
    _check_states([group for group in groups.groups if group.state is not None])
    return _check_drafters(groups, drafter_groups)


def _check_states(groups: Sequence[Group]) -> None:
    """All recurrent groups hold the same two states, convolution inputs and recurrence."""
    for group in groups:
        state = group.state
        assert state is not None
        if len(state.shapes) != 2 or len(state.dtypes) != 2:
            raise UnsupportedModel(
                f"{group.name} has {len(state.shapes)} states of {len(state.dtypes)} types; "
                "exactly two are supported, the convolution's inputs and the recurrence"
            )
        first = groups[0].state
        assert first is not None
        for name in StateShape.__dataclass_fields__:
            ours, theirs = getattr(first, name), getattr(state, name)
            if ours != theirs:
                raise UnsupportedModel(
                    f"all recurrent groups must be alike, but {name} is {ours} in "
                    f"{groups[0].name} and {theirs} in {group.name}"
                )


def _check_drafters(groups: TransferGroups, policy: DrafterGroups) -> list[str]:
    drafters = [
        group.name for group in groups.groups if group.is_drafter and group.kind.is_attention
    ]
    if not drafters:
        return []
    message = (
        f"a drafter owns cache groups of its own: {', '.join(drafters)}; they are transferred, but "
        "this layout is tested less than one that shares the target's groups"
    )
    if policy == "refuse":
        raise UnsupportedModel(f"{message}. Set drafter_groups to 'accept' to use it")
    return [message]
