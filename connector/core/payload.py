"""Block lists on the wire: what a producer hands over, and what a consumer takes for true.

A payload is one list of block ids for each group, attention groups first. Null ids (0) keep their
place: they stand for positions whose block the producer no longer has.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import cast

from connector.core.errors import MalformedPayload
from connector.core.groups import Group, GroupKind, TransferGroups

NULL_BLOCK = 0
BlockLists = list[list[int]]


def clip(group: Group, blocks: Sequence[int]) -> list[int]:
    """The blocks of one group that are handed over.

    Full attention as allocated; of a sliding window its last blocks; a ring's one block; of a
    state the running slot, which is what is left when the scratch slots behind it are dropped.
    """
    if group.kind is GroupKind.STATE:
        kept = max(len(blocks) - group.num_scratch, min(len(blocks), 1))
        return list(blocks[:kept][-1:])
    length = group.clip_length()
    return list(blocks) if length is None else list(blocks[-length:])


def encode(groups: TransferGroups, blocks: Sequence[Sequence[int]]) -> BlockLists:
    """The payload for ``blocks``, which are one list for each group in transfer order."""
    if len(blocks) != len(groups):
        raise ValueError(f"expected {len(groups)} block lists, one a group, got {len(blocks)}")
    return [clip(groups.groups[i], blocks[i]) for i in groups.wire_order]


def pad_dropped_token(groups: TransferGroups, blocks: BlockLists, num_tokens: int) -> BlockLists:
    """Make a payload of ``num_tokens - 1`` computed tokens as long as one of ``num_tokens``.

    For models without state, upstream's consumer pairs lists from their ends and expects a block
    for the last prompt token. Where the producer dropped that token and it would have had a block
    of its own, a null takes the place.
    """
    if groups.has_state or not groups.has_window:
        return blocks
    return [
        _with_null(group, ids) if (num_tokens - 1) % group.block_size == 0 else ids
        for group, ids in zip(groups.on_wire, blocks, strict=True)
    ]


def _with_null(group: Group, ids: list[int]) -> list[int]:
    if group.kind is GroupKind.RING or not ids:
        return ids
    length = group.clip_length()
    padded = [*ids, NULL_BLOCK]
    return padded if length is None else padded[-length:]


def decode(groups: TransferGroups, raw: object, *, num_blocks: int | None = None) -> BlockLists:
    """Check a payload from outside.

    Args:
        groups: ours, which are the producer's too, or the handshake fails.
        raw: what came as ``remote_block_ids``.
        num_blocks: blocks of the producer's pool, where they are known.

    Raises:
        MalformedPayload: naming the group and what is wrong.
    """
    if not isinstance(raw, list | tuple):
        raise MalformedPayload(f"remote_block_ids is {_kind(raw)}; expected a list for each group")
    if len(raw) != len(groups):
        raise MalformedPayload(
            f"remote_block_ids has {len(raw)} groups, but this model transfers {len(groups)}: "
            f"{', '.join(group.name for group in groups.on_wire)}"
        )
    return [
        _decode_group(index, group, ids, num_blocks)
        for index, (group, ids) in enumerate(zip(groups.on_wire, raw, strict=True))
    ]


def _decode_group(index: int, group: Group, raw: object, num_blocks: int | None) -> list[int]:
    if isinstance(raw, list) and _is_plain(raw, num_blocks):
        ids = list(raw)
    else:
        ids = _checked(f"remote_block_ids[{index}], {group.name}:", raw, num_blocks)
    if group.kind in (GroupKind.RING, GroupKind.STATE) and len(ids) != 1:
        raise MalformedPayload(
            f"remote_block_ids[{index}], {group.name}: holds exactly one block a request, "
            f"got {len(ids)}"
        )
    return ids


def _is_plain(raw: list[object], num_blocks: int | None) -> bool:
    """Whether these are surely block ids: numbers in range, none of them twice."""
    if not raw:
        return True
    if set(map(type, raw)) != {int}:
        return False
    ids = cast("list[int]", raw)
    in_range = min(ids) >= 0 and (num_blocks is None or max(ids) < num_blocks)
    return in_range and len(set(ids)) == len(ids)


def _checked(where: str, raw: object, num_blocks: int | None) -> list[int]:
    """The block ids of ``raw``, among which nulls may be there more than once."""
    if not isinstance(raw, list | tuple):
        raise MalformedPayload(f"{where} is {_kind(raw)}; expected a list of block ids")
    seen: set[int] = set()
    for block_id in raw:
        if type(block_id) is not int:
            raise MalformedPayload(f"{where} {reprlib.repr(block_id)} is not a block id")
        if block_id < 0 or (num_blocks is not None and block_id >= num_blocks):
            limit = "" if num_blocks is None else f" and below {num_blocks}"
            raise MalformedPayload(
                f"{where} block id {reprlib.repr(block_id)} must be at least 0{limit}"
            )
        if block_id != NULL_BLOCK and block_id in seen:
            raise MalformedPayload(f"{where} block id {block_id} is there twice")
        seen.add(block_id)
    return list(raw)


def _kind(value: object) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
