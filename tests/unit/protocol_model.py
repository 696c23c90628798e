"""A model of one transfer, for exhaustive search: the connector's own state tables, a network that
loses, repeats and reorders, engines that crash, and time that may pass at any moment.

One producer and one consumer with as many ranks each. What a scheduler tells its ranks, and they
report back, arrives in order and without loss, as vLLM's step messages do; everything between the
engines may be lost once and repeated once for each kind of message, and overtakes anything.

A second request comes when the first one's blocks are free, or when the producer has started again:
then its hold has the number that the first one's had. Of its reader no more is modelled than that
it reads, undisturbed, what messages about the first hold must not take away.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol_consumer import arrives_at_consumer, consumer_events
from protocol_producer import NO_REQUEST, arrives_at_producer, producer_events
from protocol_world import Defect, Kind, Limits, Message, Read, Sibling, World, require, send

from connector.core.hold import HoldState
from connector.core.load import LOAD, LoadState
from connector.core.request import RequestState


def successors(world: World, limits: Limits) -> Iterator[World]:
    """Every world that one event makes of this one."""
    yield from producer_events(world, limits)
    yield from consumer_events(world, limits)
    yield from _network(world, limits)
    if limits.crashes:
        yield from crashes(world)


_TO_CONSUMER = (Kind.OFFER, Kind.WELCOME, Kind.HELD, Kind.GONE)


def _network(world: World, limits: Limits) -> Iterator[World]:
    num_faults = len(world.lost) + len(world.repeated)
    for index, message in enumerate(world.net):
        if index and world.net[index - 1] == message:
            continue
        rest = world._replace(net=world.net[:index] + world.net[index + 1 :])
        yield deliver(rest, message, limits)
        if num_faults >= limits.max_faults or message.kind not in limits.kinds:
            continue
        if message.kind not in world.lost:
            yield rest._replace(lost=world.lost | {message.kind})
        if message.kind not in world.repeated:
            yield send(world, message)._replace(repeated=world.repeated | {message.kind})


def without_inert(world: World, limits: Limits) -> World:
    """Deliver at once what can change nothing any more, and see that it changes nothing.

    When such a message arrives, or whether it is lost, makes no difference, so nothing is missed
    and the search has far fewer worlds to visit.
    """
    inert = [message for message in world.net if _is_inert(world, message, limits)]
    for message in inert:
        rest = list(world.net)
        rest.remove(message)
        world = world._replace(net=tuple(rest))
        after = deliver(world, message, limits)
        replies = [m for m in after.net if m not in world.net]
        require(after._replace(net=world.net) == world, f"a late {message} changes something")
        require(
            all(_is_inert(after, m, limits) for m in replies),
            f"the reply to a late {message} counts",
        )
    return world


def _is_inert(world: World, message: Message, limits: Limits) -> bool:
    if message.kind is Kind.OFFER:
        return not world.consumer_up or world.request is not None
    if message.kind is Kind.RELEASE:
        if limits.defect is Defect.REPEATED_RELEASE and world.producer_up:
            return False
        return _is_stale(world, message) or world.holds[message.rank] is HoldState.GONE
    if message.kind is Kind.RENEW:
        over = (HoldState.GONE, HoldState.RELEASED_EARLY)
        return _is_stale(world, message) or world.holds[message.rank] in over
    load = world.loads[message.rank]
    if message.kind in (Kind.HELLO, Kind.WELCOME):
        return not world.consumer_up or load is not LoadState.CONNECTING
    return not world.consumer_up or load is None or load in LOAD.final


def _is_stale(world: World, message: Message) -> bool:
    current = (world.incarnation, world.number)
    return not world.producer_up or (message.incarnation, message.number) != current


def deliver(world: World, message: Message, limits: Limits) -> World:
    if message.kind in _TO_CONSUMER:
        return arrives_at_consumer(world, message, limits) if world.consumer_up else world
    return arrives_at_producer(world, message, limits) if world.producer_up else world


def crashes(world: World) -> Iterator[World]:
    if world.consumer_up and world.request is not None:
        # Its NIC answers nothing any more, so nothing lands either.
        none = tuple(Read.ERROR if r is Read.IN_FLIGHT else r for r in world.reads)
        yield world._replace(
            consumer_up=False,
            reads=none,
            stragglers=(False,) * len(none),
            request=RequestState.OVER,
            siblings=(Sibling.NONE,) * len(none),
        )
    if world.producer_up and world.is_first and world.lease is not None:
        yield world._replace(producer_up=False)
    if not world.producer_up:
        n = len(world.holds)
        yield world._replace(
            **NO_REQUEST,
            producer_up=True,
            incarnation=1,
            number=0,
            holds=(HoldState.GONE,) * n,
            to_ranks=((),) * n,
            renewals=(None,) * n,
            sent=(False,) * n,
        )
