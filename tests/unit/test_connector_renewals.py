"""Renewals: when a consumer's rank sends them, and what they do to a producer's rank."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connector import wire
from connector.core.errors import MalformedPayload, PeerMismatch
from connector.core.fingerprint import PROTOCOL_VERSION
from connector.core.offer import EXTENSION_KEY, Address, HoldId
from connector.counters import Counters
from connector.holds import HoldBook
from connector.metadata import ExpectedHold, KeepOrder, Renewals, Share, StepOrders
from connector.renewer import Renewer
from tests.connector_events import logged

ADDRESS = Address("10.0.0.1", 6301, 61005, 1)


class FakePeer:
    """A producer rank that notes what it is sent, and shakes hands when it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[int]]] = []
        self.is_there = True
        self.has_hung_up = False
        self.incarnation = "now"
        self.sockets: list[Any] = ["handshake"]
        self.talk = self

    def reach(self, now: float, incarnation: str, since: float) -> bool:
        if self.is_there and incarnation != self.incarnation:
            raise PeerMismatch("it has started again")
        return self.is_there

    def extend_leases(self, incarnation: str, numbers: list[int]) -> bool:
        if self.has_hung_up:
            self.has_hung_up = False
            return False
        self.sent.append((incarnation, numbers))
        return True


@pytest.fixture
def peer() -> FakePeer:
    return FakePeer()


@pytest.fixture
def renewer(peer: FakePeer) -> Renewer:
    source: Any = lambda _address: peer  # noqa: E731
    return Renewer(source, control_timeout_s=0.5, renewal_timeout_s=100.0, counters=Counters())


def order(number: int, incarnation: str = "now", lease_s: float = 60.0) -> KeepOrder:
    share = Share(f"t{number}", ADDRESS, HoldId(incarnation, number))
    return KeepOrder(f"r{number}", share, lease_s)


def run(renewer: Renewer, until: float, start: float = 0.0) -> list[float]:
    """Do what the loader's thread does; the moments at which it woke."""
    now, woken = start, []
    while (wait := renewer.seconds_to_next(now)) is not None and now + wait <= until:
        now += max(wait, 0.25 if renewer.sockets else 0.0)
        renewer.go_on(now)
        woken.append(now)
    return woken


def test_a_load_that_is_over_soon_costs_no_message(renewer: Renewer, peer: FakePeer) -> None:
    """A hold that is released within control_timeout is never renewed."""
    renewer.keep(order(1), 0.0)
    renewer.go_on(0.4)
    renewer.forget(ADDRESS, HoldId("now", 1))
    assert renewer.seconds_to_next(0.4) is None
    assert run(renewer, 1000) == []
    assert peer.sent == []
    assert len(renewer) == 0


def test_a_hold_is_renewed_three_times_a_lease_until_it_is_released(
    renewer: Renewer, peer: FakePeer
) -> None:
    """First soon, because its lease has begun before anybody here heard of it."""
    renewer.keep(order(1), 0.0)
    assert run(renewer, 61) == [0.5, 20.5, 40.5, 60.5]
    assert peer.sent == [("now", [1])] * 4
    renewer.forget(ADDRESS, HoldId("now", 1))
    assert run(renewer, 1000, start=61) == []


def test_holds_of_one_producer_go_in_one_message(renewer: Renewer, peer: FakePeer) -> None:
    """A thousand waiting requests are one message a third of a lease, not a thousand."""
    for number in range(1000):
        renewer.keep(order(number), 0.0)
    run(renewer, 30)
    assert [numbers for _, numbers in peer.sent] == [list(range(1000))] * 2


def test_nothing_is_sent_to_a_peer_that_has_not_told_its_version(
    renewer: Renewer, peer: FakePeer
) -> None:
    """The renewal waits for the handshake, and is sent at once when that is done."""
    peer.is_there = False
    renewer.keep(order(1), 0.0)
    run(renewer, 3)
    assert peer.sent == []
    assert renewer.sockets == peer.sockets
    peer.is_there = True
    renewer.go_on(3.25)
    assert peer.sent == [("now", [1])]
    assert renewer.sockets == []


def test_holds_of_an_earlier_start_are_renewed_no_more(renewer: Renewer, peer: FakePeer) -> None:
    """Those of the present start are."""
    renewer.keep(order(1, "before"), 0.0)
    renewer.keep(order(1), 0.0)
    run(renewer, 1)
    assert peer.sent == [("now", [1])]
    assert len(renewer) == 1


def test_an_error_costs_one_renewal_and_does_not_spin(renewer: Renewer, peer: FakePeer) -> None:
    """The thread sleeps until the next one is due, and then tries again."""
    renewer.keep(order(1), 0.0)

    def reach(now: float, incarnation: str, since: float) -> bool:
        raise OSError("no such address")

    works, peer.reach = peer.reach, reach  # type: ignore[method-assign]
    assert run(renewer, 10) == [0.5]
    peer.reach = works  # type: ignore[method-assign]
    assert run(renewer, 21, start=10) == [20.5]
    assert peer.sent == [("now", [1])]


def test_a_renewal_that_met_no_connection_is_sent_after_the_next_handshake(
    renewer: Renewer, peer: FakePeer
) -> None:
    """And counts once."""
    peer.has_hung_up = True
    renewer.keep(order(1), 0.0)
    assert run(renewer, 1) == [0.5, 0.75]
    assert peer.sent == [("now", [1])]
    assert renewer._counters.take()["sent_renewals"] == 1


def test_renewing_ends_after_renewal_timeout(renewer: Renewer, peer: FakePeer) -> None:
    """So a request that is never served does not hold a producer's memory for ever."""
    renewer.keep(order(1), 0.0)
    with logged() as events:
        woken = run(renewer, 10_000)
    assert len(peer.sent) == 5
    assert woken[-1] <= 120.5
    assert len(renewer) == 0
    assert [(e["event"], e["request"]) for e in events] == [("no-longer-renewed", "r1")]


def test_a_dead_peer_is_given_up_after_renewal_timeout(renewer: Renewer, peer: FakePeer) -> None:
    """Nothing is left waiting for its handshake."""
    peer.is_there = False
    renewer.keep(order(1), 0.0)
    run(renewer, 10_000)
    assert (len(renewer), renewer.sockets, peer.sent) == (0, [], [])


def test_a_tiny_lease_does_not_make_a_flood(renewer: Renewer, peer: FakePeer) -> None:
    """A producer may state any lease; this side sends a hundred messages a second at most."""
    renewer.keep(order(1, lease_s=1e-9), 0.0)
    run(renewer, 1)
    assert len(peer.sent) <= 100


def book() -> HoldBook:
    holds = HoldBook(tp_size=1)
    expected = [ExpectedHold("a", "t", 1), ExpectedHold("b", "u", 2)]
    holds.take_orders(StepOrders(incarnation="now", expected=expected, offered=[1]))
    return holds


def test_the_scheduler_is_told_once_of_what_was_renewed_and_is_held() -> None:
    """Repeated renewals are one; those of other holds, or of another start, are none."""
    holds = book()
    wanted = [HoldId("now", 1), HoldId("now", 1), HoldId("now", 3), HoldId("before", 2)]
    assert holds.renew(wanted) == (2, 2)
    assert holds.take_renewed() == {1}
    assert holds.take_renewed() == set()


def test_a_renewal_does_not_undo_a_revocation() -> None:
    """Neither one that came before it and was not passed on yet, nor one that comes after it."""
    holds = book()
    holds.renew([HoldId("now", 1)])
    holds.take_orders(StepOrders(incarnation="now", revoked=[1]))
    assert holds.renew([HoldId("now", 1)]) == (0, 1)
    assert holds.take_renewed() == set()
    assert not holds.is_held(HoldId("now", 1))
    assert holds.take_sent() == {"a"}


def test_one_ranks_renewal_is_enough() -> None:
    """What the ranks of a step report is united."""
    assert Renewals({1, 2}).aggregate(Renewals({2, 3})) == Renewals({1, 2, 3})


def packed(**fields: object) -> bytes:
    return msgspec.msgpack.encode({"type": EXTENSION_KEY, "version": PROTOCOL_VERSION, **fields})


def test_a_renewal_arrives_as_it_was_sent() -> None:
    """With all of its holds; a question is not taken for one."""
    assert wire.decode_renewal(wire.encode_renewal("now", [3, 5])) == [
        HoldId("now", 3),
        HoldId("now", 5),
    ]
    assert wire.decode_renewal(wire.encode_question(wire.Question(HoldId("now", 3), 7))) is None


@pytest.mark.parametrize(
    "message",
    [
        b"\xc1",
        b"renew",
        packed(renew=[1]),
        packed(renew=1, incarnation="now"),
        packed(renew=["1"], incarnation="now"),
        packed(renew=[True], incarnation="now"),
        packed(renew=[1], incarnation=7),
        msgspec.msgpack.encode({"type": EXTENSION_KEY, "version": 9, "renew": [1]}),
    ],
)
def test_a_malformed_renewal_is_refused(message: bytes) -> None:
    """By the one error that the listener drops messages for."""
    with pytest.raises(MalformedPayload):
        wire.decode_renewal(message)
