"""A model of one transfer, for exhaustive search: the connector's own state tables, a network that
loses, repeats and reorders, engines that crash, and time that may pass at any moment.

One producer and one consumer with as many ranks each. What a scheduler tells its ranks, and they
report back, arrives in order and without loss, as vLLM's step messages do; everything between the
engines may be lost once and repeated once for each kind of message, and overtakes anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

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
from connector.core.load import LOAD, LoadAction, LoadEvent, LoadState
from connector.core.request import REQUEST, RequestAction, RequestEvent, RequestState


class Kind(Enum):
    """Messages between the engines, the router's hand-off included."""

    OFFER = auto()
    HELLO = auto()
    WELCOME = auto()
    ASK = auto()
    HELD = auto()
    GONE = auto()
    RELEASE = auto()
    RENEW = auto()


class Message(NamedTuple):
    """One message; ``incarnation`` is the producer's that it is about or comes from."""

    kind: Kind
    rank: int = 0
    incarnation: int = 0

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.kind.value, self.rank, self.incarnation)


class Read(Enum):
    """The reads of one consumer rank, taken together."""

    NONE = auto()
    IN_FLIGHT = auto()
    CLEAN = auto()
    """Landed while the producer held the blocks."""
    FOREIGN = auto()
    """Landed when they were no longer held."""
    ERROR = auto()


class World(NamedTuple):
    """Everything at one moment."""

    lease: LeaseState | None = None
    dropped: bool = False
    freed: bool = False
    holds: tuple[HoldState, ...] = ()
    to_ranks: tuple[tuple[HoldEvent, ...], ...] = ()
    sent: tuple[bool, ...] = ()
    incarnation: int = 0
    producer_up: bool = True
    net: tuple[Message, ...] = ()
    lost: frozenset[Kind] = frozenset()
    repeated: frozenset[Kind] = frozenset()
    request: RequestState | None = None
    loads: tuple[LoadState | None, ...] = ()
    reads: tuple[Read, ...] = ()
    reported: tuple[bool | None, ...] = ()
    consumer_up: bool = True
    used: bool = False
    asked_again: bool = False
    renewed: bool = False


@dataclass(frozen=True)
class Limits:
    """What may happen in a run besides the ordinary."""

    ranks: int = 1
    max_faults: int = 0
    """Messages lost and messages repeated, together."""
    kinds: frozenset[Kind] = frozenset(Kind)
    """What may be lost and repeated; each kind once."""
    crashes: bool = True
    validates: bool = True


class Broken(AssertionError):
    """An invariant does not hold."""


def start(limits: Limits) -> World:
    n = limits.ranks
    return World(
        holds=(HoldState.EXPECTED,) * n,
        to_ranks=((),) * n,
        sent=(False,) * n,
        loads=(None,) * n,
        reads=(Read.NONE,) * n,
        reported=(None,) * n,
    )


def successors(world: World, limits: Limits) -> Iterator[World]:
    """Every world that one event makes of this one."""
    yield from _producer(world)
    yield from _consumer(world, limits)
    yield from _network(world, limits)
    if limits.crashes:
        yield from _crashes(world)


# ----------------------------------------------------------------------- producer


def _producer(world: World) -> Iterator[World]:
    if not world.producer_up:
        return
    if world.lease is None and not world.dropped and world.incarnation == 0:
        yield _tell_ranks(world, HoldEvent.DROPPED)._replace(dropped=True, freed=True)
        offered = _tell_ranks(world, HoldEvent.OFFERED)._replace(lease=LeaseState.HOLDING)
        yield _send(offered, Message(Kind.OFFER))
    if world.lease is LeaseState.HOLDING:
        yield _lease(world, LeaseEvent.EXPIRED)
    for rank, told in enumerate(world.to_ranks):
        if told:
            rest = _put(world.to_ranks, rank, told[1:])
            yield _hold(world._replace(to_ranks=rest), rank, told[0])
    if world.lease is not None and all(world.sent) and not world.freed:
        yield _lease(world, LeaseEvent.SENT)


def _tell_ranks(world: World, event: HoldEvent) -> World:
    return world._replace(to_ranks=tuple((*told, event) for told in world.to_ranks))


def _lease(world: World, event: LeaseEvent) -> World:
    assert world.lease is not None
    move = LEASE(world.lease, event)
    world = world._replace(lease=move.state)
    for action in move.actions:
        if action is LeaseAction.REVOKE:
            world = _tell_ranks(world, HoldEvent.REVOKED)
        elif action is LeaseAction.FREE:
            _require(not world.freed, "the blocks are freed twice")
            world = world._replace(freed=True)
    return world


def _hold(world: World, rank: int, event: HoldEvent) -> World:
    move = RANK_HOLD(world.holds[rank], event)
    world = world._replace(holds=_put(world.holds, rank, move.state))
    for action in move.actions:
        if action is HoldAction.REPORT_SENT:
            _require(not world.sent[rank], "a rank reports the end of a hold twice")
            world = world._replace(sent=_put(world.sent, rank, True))
        else:
            if action is HoldAction.SAY_HELD:
                _require(not world.freed, "a rank says that freed blocks are held")
            kind = Kind.HELD if action is HoldAction.SAY_HELD else Kind.GONE
            world = _send(world, Message(kind, rank, world.incarnation))
    return world


def _arrives_at_producer(world: World, message: Message) -> World:
    if message.kind is Kind.HELLO:
        return _send(world, Message(Kind.WELCOME, message.rank, world.incarnation))
    if message.incarnation != world.incarnation:
        # A hold of an earlier life, of which this one knows nothing.
        is_question = message.kind is Kind.ASK
        return _send(world, message._replace(kind=Kind.GONE)) if is_question else world
    if message.kind is Kind.RENEW:
        return _lease(world, LeaseEvent.RENEWED)
    event = HoldEvent.ASKED if message.kind is Kind.ASK else HoldEvent.RELEASED
    return _hold(world, message.rank, event)


# ----------------------------------------------------------------------- consumer


def _consumer(world: World, limits: Limits) -> Iterator[World]:
    if not world.consumer_up or world.request in (None, RequestState.OVER):
        yield from _late_reads(world)
        return
    if world.request is RequestState.OFFERED:
        yield _request(world, RequestEvent.LOAD)
        yield _request(world, RequestEvent.NO_LOAD)
        if not world.renewed:
            yield _send(world._replace(renewed=True), Message(Kind.RENEW))
    if all(done is not None for done in world.reported) and world.request in (
        RequestState.LOADING,
        RequestState.ORPHANED,
    ):
        yield _report_to_scheduler(world)
    if world.request is not RequestState.ORPHANED:
        yield _request(world, RequestEvent.ENDED)
    for rank, load in enumerate(world.loads):
        if load is not None:
            yield from _rank(world, rank, load, limits)
    yield from _late_reads(world)


def _report_to_scheduler(world: World) -> World:
    loaded = all(world.reported)
    was_wanted = world.request is RequestState.LOADING
    world = _request(world, RequestEvent.REPORTED)
    if loaded and was_wanted:
        clean = all(read is Read.CLEAN for read in world.reads)
        _require(clean, "bytes are used that the producer no longer held")
        world = world._replace(used=True)
    return world


def _request(world: World, event: RequestEvent) -> World:
    assert world.request is not None
    move = REQUEST(world.request, event)
    world = world._replace(request=move.state)
    for action in move.actions:
        if action is RequestAction.START_LOAD:
            world = world._replace(loads=(LoadState.CONNECTING,) * len(world.loads))
            for rank in range(len(world.loads)):
                world = _send(world, Message(Kind.HELLO, rank))
        else:
            for rank in range(len(world.loads)):
                world = _send(world, Message(Kind.RELEASE, rank))
    gives_blocks_back = move.state is RequestState.OVER or (
        move.state is RequestState.SETTLED and False in world.reported
    )
    in_flight = Read.IN_FLIGHT in world.reads
    _require(not (gives_blocks_back and in_flight), "blocks are given up under a read in flight")
    return world


def _rank(world: World, rank: int, load: LoadState, limits: Limits) -> Iterator[World]:
    if load in (LoadState.CONNECTING, LoadState.READING, LoadState.CONFIRMING):
        yield _load(world, rank, LoadEvent.TIMED_OUT)
    if load is LoadState.READING:
        if world.reads[rank] in (Read.CLEAN, Read.FOREIGN):
            done = LoadEvent.SUCCEEDED if limits.validates else LoadEvent.UNCONFIRMED
            yield _load(world, rank, done)
        if world.reads[rank] is Read.ERROR:
            yield _load(world, rank, LoadEvent.BROKEN)
    if load is LoadState.FENCED and world.reads[rank] is not Read.IN_FLIGHT:
        yield _load(world, rank, LoadEvent.FENCE_DOWN)
    if load is LoadState.CONFIRMING and not world.asked_again:
        yield _send(world._replace(asked_again=True), Message(Kind.ASK, rank))


def _late_reads(world: World) -> Iterator[World]:
    """A read lands, or fails, whatever its load has become."""
    for rank, read in enumerate(world.reads):
        if read is Read.IN_FLIGHT:
            held = not world.freed and world.incarnation == 0 and world.producer_up
            if world.producer_up and world.incarnation == 0:
                landed = Read.CLEAN if held else Read.FOREIGN
                yield world._replace(reads=_put(world.reads, rank, landed))
            yield world._replace(reads=_put(world.reads, rank, Read.ERROR))


def _load(world: World, rank: int, event: LoadEvent) -> World:
    load = world.loads[rank]
    assert load is not None
    move = LOAD(load, event)
    world = world._replace(loads=_put(world.loads, rank, move.state))
    for action in move.actions:
        if action is LoadAction.POST_READS:
            world = world._replace(reads=_put(world.reads, rank, Read.IN_FLIGHT))
        elif action is LoadAction.ASK:
            world = _send(world, Message(Kind.ASK, rank))
        elif action is LoadAction.RELEASE:
            _require(
                world.reads[rank] is not Read.IN_FLIGHT, "a rank releases blocks that it reads"
            )
            world = _send(world, Message(Kind.RELEASE, rank))
        else:
            _require(world.reported[rank] is None, "a load is reported twice")
            loaded = action is LoadAction.REPORT_LOADED
            world = world._replace(reported=_put(world.reported, rank, loaded))
    return world


def _arrives_at_consumer(world: World, message: Message) -> World:
    if message.kind is Kind.OFFER:
        # A repeated hand-off is a second request, which is another run of this model.
        return world if world.request else world._replace(request=RequestState.OFFERED)
    load = world.loads[message.rank]
    if load is None:
        return world
    if message.kind is Kind.WELCOME:
        if load is not LoadState.CONNECTING:
            return world
        event = LoadEvent.CONNECTED if message.incarnation == 0 else LoadEvent.REFUSED
        return _load(world, message.rank, event)
    if load in LOAD.final or load is LoadState.CONFIRMING:
        event = LoadEvent.HELD if message.kind is Kind.HELD else LoadEvent.GONE
        return _load(world, message.rank, event)
    raise Broken(f"an answer arrives that nobody asked for, in state {load.name}")


# ------------------------------------------------------------ network and crashes


_TO_CONSUMER = (Kind.OFFER, Kind.WELCOME, Kind.HELD, Kind.GONE)


def _network(world: World, limits: Limits) -> Iterator[World]:
    num_faults = len(world.lost) + len(world.repeated)
    for index, message in enumerate(world.net):
        if index and world.net[index - 1] == message:
            continue
        rest = world._replace(net=world.net[:index] + world.net[index + 1 :])
        yield _deliver(rest, message)
        if num_faults >= limits.max_faults or message.kind not in limits.kinds:
            continue
        if message.kind not in world.lost:
            yield rest._replace(lost=world.lost | {message.kind})
        if message.kind not in world.repeated:
            yield _send(world, message)._replace(repeated=world.repeated | {message.kind})


def without_inert(world: World) -> World:
    """Deliver at once what can change nothing any more, and see that it changes nothing.

    When such a message arrives, or whether it is lost, makes no difference, so nothing is missed
    and the search has far fewer worlds to visit.
    """
    inert = [message for message in world.net if _is_inert(world, message)]
    for message in inert:
        rest = list(world.net)
        rest.remove(message)
        world = world._replace(net=tuple(rest))
        after = _deliver(world, message)
        replies = [m for m in after.net if m not in world.net]
        _require(after._replace(net=world.net) == world, f"a late {message} changes something")
        _require(all(_is_inert(after, m) for m in replies), f"the reply to a late {message} counts")
    return world


def _is_inert(world: World, message: Message) -> bool:
    if message.kind is Kind.OFFER:
        return not world.consumer_up or world.request is not None
    if message.kind is Kind.RELEASE:
        gone = world.holds[message.rank] is HoldState.GONE
        return gone or message.incarnation != world.incarnation
    if message.kind is Kind.RENEW:
        return world.lease is not LeaseState.HOLDING
    load = world.loads[message.rank]
    if message.kind in (Kind.HELLO, Kind.WELCOME):
        return not world.consumer_up or load is not LoadState.CONNECTING
    return not world.consumer_up or load is None or load in LOAD.final


def _deliver(world: World, message: Message) -> World:
    if message.kind in _TO_CONSUMER:
        return _arrives_at_consumer(world, message) if world.consumer_up else world
    return _arrives_at_producer(world, message) if world.producer_up else world


def _crashes(world: World) -> Iterator[World]:
    if world.consumer_up and world.request is not None:
        # Its NIC answers nothing any more, so nothing lands either.
        none = tuple(Read.ERROR if r is Read.IN_FLIGHT else r for r in world.reads)
        yield world._replace(consumer_up=False, reads=none, request=RequestState.OVER)
    if world.producer_up and world.incarnation == 0 and world.lease is not None:
        yield world._replace(producer_up=False)
    if not world.producer_up:
        n = len(world.holds)
        yield world._replace(
            producer_up=True,
            incarnation=1,
            lease=None,
            freed=True,
            holds=(HoldState.GONE,) * n,
            to_ranks=((),) * n,
            sent=(False,) * n,
        )


# ----------------------------------------------------------------------- searching


def at_rest(world: World) -> bool:
    """Nothing is held, waited for, in flight or unread, on any side."""
    producer = world.incarnation > 0 or world.lease is LeaseState.FREED or world.dropped
    no_hold = all(hold is HoldState.GONE for hold in world.holds)
    consumer = world.request in (None, RequestState.OVER)
    return producer and no_hold and consumer and world.freed and not world.net


def explore(limits: Limits) -> tuple[int, int]:
    """Visit every reachable world; (worlds, worlds at rest).

    Raises:
        Broken: an invariant does not hold in some world, or some world never comes to rest.
    """
    first = start(limits)
    predecessors: dict[World, list[World]] = {first: []}  # by what is not a fault
    resting: list[World] = []
    queue = deque([first])
    while queue:
        world = queue.popleft()
        if at_rest(world):
            resting.append(world)
        for successor in successors(world, limits):
            after = without_inert(successor)
            if after not in predecessors:
                predecessors[after] = []
                queue.append(after)
            if not _is_fault(world, after):
                predecessors[after].append(world)
    _require_rest(predecessors, resting)
    return len(predecessors), len(resting)


def _is_fault(before: World, after: World) -> bool:
    """Whether something went wrong in between; coming to rest must not depend on that."""
    went_down = (before.producer_up, before.consumer_up) > (after.producer_up, after.consumer_up)
    return went_down or before.lost != after.lost or before.repeated != after.repeated


def _require_rest(predecessors: dict[World, list[World]], resting: list[World]) -> None:
    reaches = set(resting)
    queue = deque(resting)
    while queue:
        for before in predecessors[queue.popleft()]:
            if before not in reaches:
                reaches.add(before)
                queue.append(before)
    stuck = next((world for world in predecessors if world not in reaches), None)
    _require(stuck is None, f"this world never comes to rest: {stuck}")


def _send(world: World, message: Message) -> World:
    return world._replace(net=tuple(sorted((*world.net, message), key=lambda m: m.key)))


def _put(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)
