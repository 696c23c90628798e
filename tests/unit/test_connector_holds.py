"""What a producer's rank knows of its holds, and how readers' messages find them."""

from __future__ import annotations

import pytest

from connector.core.offer import HoldId
from connector.holds import HoldBook
from connector.metadata import ExpectedHold, StepOrders


def book(*expected: ExpectedHold) -> HoldBook:
    holds = HoldBook(tp_size=1)
    holds.take_orders(
        StepOrders(
            incarnation="now",
            expected=list(expected),
            offered=[hold.number for hold in expected],
        )
    )
    return holds


def test_a_release_by_transfer_alone_ends_the_oldest_hold_of_it_first() -> None:
    """An upstream reader names the transfer only, which a retried prefill shares with the first:
    each release ends one hold, and a third none."""
    holds = book(ExpectedHold("a", "t", 1), ExpectedHold("b", "t", 2), ExpectedHold("c", "u", 3))
    assert holds.release("t", None, None, 1)
    assert holds.take_sent() == {"a"}
    assert holds.release("t", None, None, 1)
    assert holds.take_sent() == {"b"}
    assert not holds.release("t", None, None, 1)
    assert len(holds) == 1


def test_a_hold_that_ended_by_its_number_is_not_found_by_its_transfer() -> None:
    """However it ended: by a reader of ours, or revoked."""
    holds = book(ExpectedHold("a", "t", 1), ExpectedHold("b", "u", 2))
    assert holds.release("t", HoldId("now", 1), 0, 1)
    assert not holds.release("t", None, None, 1)
    holds.take_orders(StepOrders(incarnation="now", revoked=[2]))
    assert not holds.release("u", None, None, 1)
    assert holds.take_sent() == {"a", "b"}
    assert len(holds) == 0


def test_a_release_that_names_a_hold_of_another_transfer_ends_neither() -> None:
    """A router that gives one request another's hold does not free blocks that are being read."""
    holds = book(ExpectedHold("a", "t", 1), ExpectedHold("b", "u", 2))
    assert not holds.release("u", HoldId("now", 1), 0, 1)
    assert holds.take_sent() == set()
    assert len(holds) == 2


def test_looking_a_hold_up_does_not_depend_on_how_many_there_are() -> None:
    """A thousand releases among a thousand holds: a search through all would compare half a
    million times."""
    many = [ExpectedHold(f"r{n}", f"t{n}", n) for n in range(1_000)]
    holds = book(*many)
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    for expected in reversed(many):
        assert holds.release(Name(expected.transfer_id), None, None, 1)
    assert len(holds) == 0
    assert compared < 10 * len(many)


@pytest.mark.requirement("R18", "S1")
def test_the_end_of_a_request_ends_no_hold_of_a_later_one_of_its_id() -> None:
    """A front end may use an id again at once: a step that drops one may expect the other."""
    holds = HoldBook(tp_size=1)
    holds.take_orders(StepOrders(incarnation="now", expected=[ExpectedHold("a", "t", 1)]))
    again = [ExpectedHold("a", "u", 2)]
    holds.take_orders(StepOrders(incarnation="now", expected=again, dropped=[1]))
    assert not holds.is_held(HoldId("now", 1))
    holds.take_orders(StepOrders(incarnation="now", offered=[2]))
    assert holds.is_held(HoldId("now", 2))
    assert holds.release("u", HoldId("now", 2), 0, 1)
    assert holds.take_sent() == {"a"}
    assert len(holds) == 0
