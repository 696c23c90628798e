"""The consumer of `protocol_model`: its scheduler, its ranks, their reads, what arrives at them."""

from __future__ import annotations

from collections.abc import Iterator

from protocol_world import (
    Broken,
    Defect,
    Kind,
    Limits,
    Message,
    Read,
    Sibling,
    World,
    put,
    require,
    send,
)

from connector.core.load import LOAD, LoadAction, LoadEvent, LoadState
from connector.core.request import REQUEST, RequestAction, RequestEvent, RequestState


def consumer_events(world: World, limits: Limits) -> Iterator[World]:
    if world.consumer_up and world.request is not None:
        yield from _sibling_events(world, limits)
    if not world.consumer_up or world.request in (None, RequestState.OVER):
        yield from _late_reads(world)
        return
    if world.request is RequestState.OFFERED:
        yield _request(world, RequestEvent.LOAD)
        yield _request(world, RequestEvent.NO_LOAD)
    if all(done is not None for done in world.reported) and world.request in (
        RequestState.LOADING,
        RequestState.ORPHANED,
    ):
        yield _report_to_scheduler(world)
    yield from _renewals(world, limits)
    if world.request is not RequestState.ORPHANED:
        yield _request(world, RequestEvent.ENDED)
    for rank, load in enumerate(world.loads):
        if load is not None:
            yield from _rank(world, rank, load, limits)
    yield from _late_reads(world)


def _renewals(world: World, limits: Limits) -> Iterator[World]:
    """A rank renews, again and again, until it releases."""
    for rank, load in enumerate(world.loads[: limits.renewing_ranks]):
        is_kept = world.request is RequestState.OFFERED or (load and load not in LOAD.final)
        is_kept = is_kept or world.siblings[rank] is Sibling.READING
        message = Message(Kind.RENEW, rank)
        if is_kept and message not in world.net:
            yield send(world, message)


def _sibling_events(world: World, limits: Limits) -> Iterator[World]:
    """Another leg comes while the hold is not released yet, and is done with it at any time.

    A later one joins a hold of which nothing is known any more: it is confirmed or not like any.
    """
    if limits.sibling and not any(world.released) and Sibling.DONE not in world.siblings:
        is_missed = limits.defect is Defect.FIRST_LEG_RELEASES
        came = Sibling.UNCOUNTED if is_missed else Sibling.READING
        yield world._replace(siblings=(came,) * len(world.siblings))
    for rank, leg in enumerate(world.siblings):
        if leg in (Sibling.READING, Sibling.UNCOUNTED):
            after = world._replace(siblings=put(world.siblings, rank, Sibling.DONE))
            yield _release(after, rank) if world.released[rank] else after


def _leg_done(world: World, rank: int) -> World:
    """The leg that is modelled in full is done; the last one releases."""
    world = world._replace(released=put(world.released, rank, True))
    return world if world.siblings[rank] is Sibling.READING else _release(world, rank)


def _release(world: World, rank: int) -> World:
    return send(world, Message(Kind.RELEASE, rank))


def _report_to_scheduler(world: World) -> World:
    loaded = all(world.reported)
    was_wanted = world.request is RequestState.LOADING
    world = _request(world, RequestEvent.REPORTED)
    if loaded and was_wanted:
        clean = all(read is Read.CLEAN for read in world.reads)
        require(clean, "bytes are used that the producer no longer held")
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
                world = send(world, Message(Kind.HELLO, rank))
        else:
            for rank in range(len(world.loads)):
                world = _leg_done(world, rank)
    gives_blocks_back = move.state is RequestState.OVER or (
        move.state is RequestState.SETTLED and False in world.reported
    )
    in_flight = Read.IN_FLIGHT in world.reads or any(world.stragglers)
    require(not (gives_blocks_back and in_flight), "blocks are given up under a read in flight")
    return world


def _rank(world: World, rank: int, load: LoadState, limits: Limits) -> Iterator[World]:
    if load in (LoadState.CONNECTING, LoadState.READING, LoadState.REPAIRING):
        yield _load(world, rank, LoadEvent.TIMED_OUT)
    if load is LoadState.CONFIRMING:
        is_verified = limits.verifies
        yield _load(world, rank, LoadEvent.DOUBTED if is_verified else LoadEvent.TIMED_OUT)
    if load is LoadState.READING:
        succeeded = (Read.CLEAN, Read.FOREIGN)
        if limits.early_success:
            succeeded += (Read.IN_FLIGHT,)
        if world.reads[rank] in succeeded:
            is_blind = limits.defect is Defect.NO_VALIDATION
            done = LoadEvent.UNCONFIRMED if is_blind else LoadEvent.SUCCEEDED
            yield _load(world, rank, done)
        if world.reads[rank] is Read.ERROR:
            yield _load(world, rank, LoadEvent.BROKEN)
        if rank < limits.repeating_ranks and not world.repeated_reads[rank]:
            yield _load(world, rank, LoadEvent.PATH_LOST)
    if load in (LoadState.REPAIRING, LoadState.FENCED) and world.reads[rank] is not Read.IN_FLIGHT:
        yield _load(world, rank, LoadEvent.FENCE_DOWN)
    if load is LoadState.CONFIRMING and not world.asked_again:
        yield send(world._replace(asked_again=True), Message(Kind.ASK, rank))


def _late_reads(world: World) -> Iterator[World]:
    """A read lands, or fails, whatever its load has become."""
    for rank, read in enumerate(world.reads):
        if read is Read.IN_FLIGHT:
            held = not world.freed and world.is_first
            if world.producer_up and world.incarnation == 0:
                landed = Read.CLEAN if held else Read.FOREIGN
                yield world._replace(reads=put(world.reads, rank, landed))
            yield world._replace(reads=put(world.reads, rank, Read.ERROR))
    for rank, is_under_way in enumerate(world.stragglers):
        if is_under_way:
            yield from _straggler(world, rank)


def _straggler(world: World, rank: int) -> Iterator[World]:
    """A read that was given up lands, over what was read since, or never will."""
    gone = world._replace(stragglers=put(world.stragglers, rank, False))
    yield gone
    if world.producer_up and world.incarnation == 0 and (world.freed or not world.is_first):
        yield gone._replace(reads=put(world.reads, rank, Read.FOREIGN))


def _load(world: World, rank: int, event: LoadEvent) -> World:
    load = world.loads[rank]
    assert load is not None
    move = LOAD(load, event)
    world = world._replace(loads=put(world.loads, rank, move.state))
    for action in move.actions:
        if action is LoadAction.POST_READS:
            if world.reads[rank] is Read.IN_FLIGHT:
                world = world._replace(stragglers=put(world.stragglers, rank, True))
            world = world._replace(reads=put(world.reads, rank, Read.IN_FLIGHT))
        elif action is LoadAction.START_OVER:
            world = world._replace(repeated_reads=put(world.repeated_reads, rank, True))
            world = send(world, Message(Kind.HELLO, rank))
        elif action is LoadAction.ASK:
            world = send(world, Message(Kind.ASK, rank))
        elif action is LoadAction.RELEASE:
            is_reading = world.reads[rank] is Read.IN_FLIGHT or world.stragglers[rank]
            require(not is_reading, "a rank releases blocks that it reads")
            world = _leg_done(world, rank)
        else:
            require(world.reported[rank] is None, "a load is reported twice")
            loaded = action is LoadAction.REPORT_LOADED
            world = world._replace(reported=put(world.reported, rank, loaded))
    return world


def arrives_at_consumer(world: World, message: Message, limits: Limits) -> World:
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
    if load in LOAD.final or load in (LoadState.CONFIRMING, LoadState.FENCED):
        event = LoadEvent.HELD if message.kind is Kind.HELD else LoadEvent.GONE
        if limits.verifies and load is LoadState.CONFIRMING:
            is_equal = event is LoadEvent.HELD and world.reads[message.rank] is Read.CLEAN
            event = event if is_equal else LoadEvent.DOUBTED
        return _load(world, message.rank, event)
    raise Broken(f"an answer arrives that nobody asked for, in state {load.name}")
