"""Worlds of `protocol_model` that nobody can tell apart, made one."""

from __future__ import annotations

from typing import Any

from protocol_world import Kind, Limits, Read, World

from connector.core.hold import LeaseState
from connector.core.load import LOAD, LoadState
from connector.core.request import RequestState


def tidy(world: World, limits: Limits) -> World:
    """Without what nothing looks at any more: neither an event, nor an invariant, nor `at_rest`."""
    changes: dict[str, Any] = {"used": False, "dropped": False}
    if not limits.sibling:
        changes["released"] = (False,) * limits.ranks
    if world.lease is not LeaseState.HOLDING:
        changes["is_due"] = False
    ranks = [_rank(world, rank) for rank in range(limits.ranks)]
    changes["loads"], changes["reads"], changes["reported"] = zip(*ranks, strict=True)
    return world._replace(**changes)


def _rank(world: World, rank: int) -> tuple[LoadState | None, Read, bool | None]:
    """A consumer rank's load, its reads and its report."""
    load, read, reported = world.loads[rank], world.reads[rank], world.reported[rank]
    is_final = load is None or load in LOAD.final
    is_told = world.request in (RequestState.SETTLED, RequestState.OVER)
    if not world.consumer_up or (is_told and is_final):
        # The engine is gone, or its scheduler has taken the report, which it takes once.
        load, reported = None, None
    elif world.request is RequestState.ORPHANED and is_final:
        # The scheduler waits for the report and does not care what it says.
        load, reported = LoadState.FAILED, False
    # Of reads that do not count it matters only whether they are under way.
    is_void = load in (None, LoadState.FAILED, LoadState.FENCED)
    return load, Read.NONE if is_void and read is not Read.IN_FLIGHT else read, reported


_OF_RANKS = (
    *("holds", "to_ranks", "renewals", "sent", "readers", "refused", "loads", "reads"),
    *("repeated_reads", "stragglers", "reported", "siblings", "released"),
)


def in_order(world: World) -> World:
    """The world or, of two ranks, the one with the ranks exchanged: the same one of both.

    Ranks have no parts of their own, as long as `Limits` lets each of them do the same.
    """
    if len(world.holds) != 2 or _key(world, 0) <= _key(world, 1):
        return world
    exchanged = {name: getattr(world, name)[::-1] for name in _OF_RANKS}
    net = (m if m.kind is Kind.OFFER else m._replace(rank=1 - m.rank) for m in world.net)
    return world._replace(**exchanged, net=tuple(sorted(net, key=lambda m: m.key)))


def _key(world: World, rank: int) -> list[Any]:
    """All that is the rank's, in an order that is the same in every process."""
    messages = [(m.kind.value, *m[2:]) for m in world.net if m.rank == rank]
    return [*(_number(getattr(world, name)[rank]) for name in _OF_RANKS), messages]


def _number(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_number, value))
    return -1 if value is None else getattr(value, "value", value)
