"""The producer of `protocol_model`: its scheduler, its ranks, and what arrives at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol_world import (
    Defect,
    Kind,
    Limits,
    Message,
    Reader,
    World,
    at_rest,
    is_shared,
    put,
    require,
    send,
)

from connector.core.hold import (
    LEASE,
    RANK_HOLD,
    HoldAction,
    HoldEvent,
    HoldState,
    LeaseAction,
    LeaseEvent,
    LeaseState,
)


def producer_events(world: World, limits: Limits) -> Iterator[World]:
    if not world.producer_up:
        return
    yield from _requests(world, limits)
    if world.lease is LeaseState.HOLDING:
        yield _lease(world, LeaseEvent.EXPIRED) if world.is_due else world._replace(is_due=True)
    for rank, told in enumerate(world.to_ranks):
        if told:
            rest = put(world.to_ranks, rank, told[1:])
            yield _told(world._replace(to_ranks=rest), rank, told[0], limits)
        if world.renewals[rank] is not None:
            yield _take_renewal(world, rank, limits)
    if world.lease is not None and all(world.sent) and not world.freed:
        yield _lease(world, LeaseEvent.SENT)


def _requests(world: World, limits: Limits) -> Iterator[World]:
    """A request ends and is handed over or not; the second one comes, and is read."""
    if world.lease is None and not world.freed:
        dropped = _tell_ranks(world, HoldEvent.DROPPED)._replace(dropped=True, freed=True)
        offered = _tell_ranks(world, HoldEvent.OFFERED)._replace(
            lease=LeaseState.HOLDING, is_due=False
        )
        if world.is_first:
            yield dropped
            yield send(offered, Message(Kind.OFFER))
        else:
            yield offered._replace(readers=(Reader.READING,) * len(world.readers))
    is_idle = world.freed and all(hold is HoldState.GONE for hold in world.holds)
    if limits.second_request and not world.has_second and is_idle and not at_rest(world):
        n = len(world.holds)
        yield world._replace(
            **{**NO_REQUEST, "freed": False},
            number=1 if world.incarnation == 0 else 0,
            holds=(HoldState.EXPECTED,) * n,
            to_ranks=((),) * n,
            sent=(False,) * n,
            readers=(Reader.WAITING,) * n,
        )
    for rank, reader in enumerate(world.readers):
        if reader is Reader.READING:
            read = world._replace(readers=put(world.readers, rank, Reader.DONE))
            yield _hold(read, rank, HoldEvent.RELEASED)


NO_REQUEST: dict[str, Any] = {"lease": None, "is_due": False, "dropped": False, "freed": True}


def _told(world: World, rank: int, event: HoldEvent, limits: Limits) -> World:
    """A rank hears of its scheduler's decision."""
    is_renewed = world.renewals[rank] is not None
    if limits.defect is Defect.RENEWAL_COUNTED_EARLY and is_renewed and event is HoldEvent.REVOKED:
        return world._replace(sent=put(world.sent, rank, True))
    return _hold(world, rank, event)


def _take_renewal(world: World, rank: int, limits: Limits) -> World:
    """The scheduler hears of a renewal."""
    number = world.renewals[rank]
    world = world._replace(renewals=put(world.renewals, rank, None))
    is_other = number != world.number and limits.defect is not Defect.RENEWAL_OF_ANY_NUMBER
    if world.lease is None or is_other:
        return world
    require(number == world.number, "a renewal of another hold is taken")
    was_held = world.lease is LeaseState.HOLDING
    world = _lease(world, LeaseEvent.RENEWED)
    require(not (was_held and world.is_due), "a renewal that was taken gives no time")
    return world


def _tell_ranks(world: World, event: HoldEvent) -> World:
    return world._replace(to_ranks=tuple((*told, event) for told in world.to_ranks))


def _lease(world: World, event: LeaseEvent) -> World:
    assert world.lease is not None
    was_revoked = world.lease is LeaseState.REVOKING
    move = LEASE(world.lease, event)
    world = world._replace(lease=move.state)
    for action in move.actions:
        if action is LeaseAction.REVOKE:
            world = _tell_ranks(world, HoldEvent.REVOKED)
        elif action is LeaseAction.EXTEND:
            world = world._replace(is_due=False)
        elif action is LeaseAction.FREE:
            require(not world.freed, "the blocks are freed twice")
            is_read = Reader.READING in world.readers and not was_revoked
            require(not is_read, "blocks are freed that another request reads")
            is_taken = world.is_first and is_shared(world) and not was_revoked
            require(not is_taken, "blocks are freed that another leg reads")
            world = world._replace(freed=True)
    return world


def _hold(world: World, rank: int, event: HoldEvent) -> World:
    move = RANK_HOLD(world.holds[rank], event)
    world = world._replace(holds=put(world.holds, rank, move.state))
    for action in move.actions:
        if action is HoldAction.REPORT_SENT:
            require(not world.sent[rank], "a rank reports the end of a hold twice")
            world = world._replace(sent=put(world.sent, rank, True))
        elif action is HoldAction.PASS_ON:
            world = world._replace(renewals=put(world.renewals, rank, world.number))
        else:
            if action is HoldAction.SAY_HELD:
                require(not world.freed, "a rank says that freed blocks are held")
            kind = Kind.HELD if action is HoldAction.SAY_HELD else Kind.GONE
            world = send(world, Message(kind, rank))
    return world


def arrives_at_producer(world: World, message: Message, limits: Limits) -> World:
    if message.kind is Kind.HELLO:
        return send(world, Message(Kind.WELCOME, message.rank, world.incarnation))
    if not _is_about_current(world, message, limits):
        if limits.defect is Defect.REPEATED_RELEASE and message.kind is Kind.RELEASE:
            return _refuse_once(world, message)
        is_question = message.kind is Kind.ASK
        return send(world, message._replace(kind=Kind.GONE)) if is_question else world
    event = {
        Kind.ASK: HoldEvent.ASKED,
        Kind.RENEW: HoldEvent.RENEWED,
        Kind.RELEASE: HoldEvent.RELEASED,
    }[message.kind]
    return _hold(world, message.rank, event)


def _refuse_once(world: World, message: Message) -> World:
    """A release of another hold arrives at a rank with `Defect.REPEATED_RELEASE`."""
    if message.incarnation == world.incarnation:
        return world
    others_sent = world.sent[: message.rank] + world.sent[message.rank + 1 :]
    if world.refused[message.rank] and any(others_sent):
        return _hold(world, message.rank, HoldEvent.RELEASED)
    return world._replace(refused=put(world.refused, message.rank, True))


_STALE = {
    Kind.ASK: Defect.STALE_QUESTION,
    Kind.RENEW: Defect.STALE_RENEWAL,
    Kind.RELEASE: Defect.STALE_RELEASE,
}


def _is_about_current(world: World, message: Message, limits: Limits) -> bool:
    """Whether the hold that the message names is the one that the producer knows."""
    checks = limits.defect is not _STALE[message.kind]
    same_start = message.incarnation == world.incarnation
    return message.number == world.number and (same_start or not checks)
