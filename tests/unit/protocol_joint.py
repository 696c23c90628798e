"""One search of `protocol_model` through everything at once: messages are lost and repeated as
often as it may be, engines crash, leases expire, and a second request comes.

The worlds are too many to visit one by one. Three reductions leave nothing out:

*Messages stay.* What was sent once is under way for ever, and is delivered again and again.
A repetition is a second delivery, a loss is that no further one comes. No event, no guard and no
invariant asks that a message be absent, so a world with more under way can do whatever the same
world with less can: of each state of the engines only the largest nets are visited. What sends
messages and changes no engine, such as an answer to a question, happens at once.

*Coming to rest* is therefore asked of each state of the engines with nothing under way, which is
the least that losses leave. From every other world what is under way may first arrive, one message
after the other. A hello is answered by a welcome, a question by an answer, that by a release, and
these by nothing; so the net is soon empty, and the engines are in another state that was visited.

*Worlds that nobody can tell apart* are one (`protocol_tidy`): they differ in what nothing looks at,
or ranks are exchanged.

`tests/unit/test_protocol_joint.py` compares all three with a search that has none of them.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol_consumer import consumer_events
from protocol_model import crashes, deliver, without_inert
from protocol_producer import producer_events
from protocol_search import DOCUMENT, first_stuck, is_fault
from protocol_tidy import in_order, tidy
from protocol_world import Limits, Message, World, at_rest, require, start

Net = frozenset[Message]


class Joint(NamedTuple):
    """What a joint search has visited: by engines, the largest nets with which they occur."""

    nets: dict[World, list[Net]]
    at_rest: int

    @property
    def num_worlds(self) -> int:
        return sum(map(len, self.nets.values()))

    @property
    def num_with_losses(self) -> int:
        """Worlds that these stand for, at least: with any part of what is under way lost."""
        return sum(1 << len(net) for nets in self.nets.values() for net in nets[:1])


def explore_jointly(limits: Limits, *, exchanges: bool = True) -> Joint:
    """Visit every world that any losses and repetitions lead to.

    Args:
        limits: of which ``max_faults`` and ``kinds`` say nothing here.
        exchanges: whether worlds with exchanged ranks are one.

    Raises:
        Broken: an invariant does not hold in some world, or some world never comes to rest.
    """
    search = _Search(limits, exchanges and _are_alike(limits))
    search.run()
    return Joint(search.nets, search.come_to_rest())


def check_joint_search(limits: Limits, expected: int) -> None:
    """Search; the model is what it was, and its size what docs/protocol.md says."""
    began_s = time.process_time()
    found = explore_jointly(limits)
    print(
        f"{found.num_worlds:,} worlds, {found.at_rest:,} of them at rest, which stand for "
        f"{found.num_with_losses:,}, in {time.process_time() - began_s:.0f} s of processor time"
    )
    assert found.num_worlds == expected, "the model has changed: correct the number here and there"
    assert found.at_rest > 0
    assert f"{expected:,}" in DOCUMENT.read_text()


def _are_alike(limits: Limits) -> bool:
    """Whether each rank may do what the others may."""
    return {min(limits.renewing_ranks, limits.ranks), limits.repeating_ranks} <= {0, limits.ranks}


class _Search:
    def __init__(self, limits: Limits, exchanges: bool) -> None:
        self._limits = limits
        self._exchanges = exchanges
        self.nets: dict[World, list[Net]] = {}
        self._queue: deque[tuple[World, Net]] = deque()

    def run(self) -> None:
        # A question that was asked once is there to be delivered: no need to ask it again.
        self._meet(start(self._limits)._replace(asked_again=True))
        while self._queue:
            engines, net = self._queue.popleft()
            if net in self.nets[engines]:
                self._visit(engines, net)

    def come_to_rest(self) -> int:
        """How many states of the engines are at rest; each of the others leads to one."""
        numbers = {engines: number for number, engines in enumerate(self.nets)}
        predecessors = [array("I") for _ in numbers]
        for engines, number in numbers.items():
            for after in self._undisturbed(engines):
                predecessors[numbers[self._reduced(after)._replace(net=())]].append(number)
        resting = [number for engines, number in numbers.items() if at_rest(engines)]
        stuck = first_stuck(predecessors, resting)
        require(stuck is None, f"this world never comes to rest: {list(numbers)[stuck or 0]}")
        return len(resting)

    def _reduced(self, world: World) -> World:
        world = tidy(without_inert(world, self._limits), self._limits)
        return in_order(world) if self._exchanges else world

    def _meet(self, world: World) -> None:
        world = self._reduced(world)
        engines, net = world._replace(net=()), frozenset(world.net)
        known = self.nets.get(engines, [])
        if not any(net <= larger for larger in known):
            self.nets[engines] = [*(less for less in known if not less <= net), net]
            self._queue.append((engines, net))

    def _visit(self, engines: World, net: Net) -> None:
        """Let everything happen that may happen next, with all that was ever sent."""
        while True:
            changed: dict[tuple[World, Net], None] = {}
            sent = net
            for after in self._events(engines._replace(net=in_order_of_messages(net))):
                if after._replace(net=()) == engines:
                    sent |= frozenset(after.net)
                else:
                    changed[after._replace(net=()), frozenset(after.net)] = None
            if sent == net:
                break
            net = sent
        for after, under_way in changed:
            self._meet(after._replace(net=in_order_of_messages(under_way | net)))

    def _events(self, world: World) -> Iterator[World]:
        yield from _events_of_engines(world, self._limits)
        for message in world.net:
            yield deliver(world, message, self._limits)

    def _undisturbed(self, engines: World) -> Iterator[World]:
        """One event that is no fault, and the arrival of all that it sends."""
        for after in _events_of_engines(engines, self._limits):
            if is_fault(engines, after):
                continue
            while after.net:
                message, *rest = after.net
                after = deliver(after._replace(net=tuple(rest)), message, self._limits)
            yield after


def _events_of_engines(world: World, limits: Limits) -> Iterator[World]:
    yield from producer_events(world, limits)
    yield from consumer_events(world, limits)
    if limits.crashes:
        yield from crashes(world)


def in_order_of_messages(net: Iterable[Message]) -> tuple[Message, ...]:
    """Each message once."""
    return tuple(sorted(set(net), key=lambda message: message.key))
