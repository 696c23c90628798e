"""The transfer protocol with all that may go wrong in one search (docs/protocol.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest
from protocol_consumer import consumer_events
from protocol_defects import each_planted_defect
from protocol_joint import explore_jointly, in_order_of_messages
from protocol_model import crashes, deliver, without_inert
from protocol_producer import producer_events
from protocol_tidy import in_order, tidy
from protocol_world import Broken, Defect, Limits, World, start

ONE = Limits(repeating_ranks=0)
ALONE = Limits(crashes=False, second_request=False)
TWO = Limits(ranks=2, repeating_ranks=0)


def explore_plainly(limits: Limits) -> set[World]:
    """Every world, with each delivery, loss and repetition of a message a step of its own."""
    first = start(limits)
    worlds, queue = {first}, deque([first])
    while queue:
        for after in plain_steps(queue.popleft(), limits):
            after = without_inert(after._replace(net=in_order_of_messages(after.net)), limits)
            if after not in worlds:
                worlds.add(after)
                queue.append(after)
    return worlds


def plain_steps(world: World, limits: Limits) -> Iterator[World]:
    yield from producer_events(world, limits)
    yield from consumer_events(world, limits)
    if limits.crashes:
        yield from crashes(world)
    for message in world.net:
        lost = world._replace(net=tuple(other for other in world.net if other != message))
        yield lost
        yield deliver(lost, message, limits)
        yield deliver(world, message, limits)


@pytest.mark.parametrize(
    ("limits", "plain"),
    [
        pytest.param(replace(ONE, second_request=False), 6_343, id="crashes"),
        pytest.param(replace(ONE, crashes=False), 7_427, id="a second request"),
        pytest.param(replace(ALONE, repeating_ranks=0, sibling=True), 8_415, id="two legs"),
        pytest.param(ALONE, 6_415, id="read once more"),
        pytest.param(
            replace(ALONE, repeating_ranks=0, early_success=True, verifies=True),
            6_027,
            id="success before the bytes",
        ),
    ],
)
def test_messages_that_stay_lead_to_the_same_engines(limits: Limits, plain: int) -> None:
    """As losing and repeating each message, as often as it may be, one step after the other."""
    worlds = explore_plainly(limits)
    engines = {tidy(w._replace(net=(), asked_again=True), limits) for w in worlds}
    assert engines == set(explore_jointly(limits).nets)
    assert len(worlds) == plain


def test_exchanged_ranks_are_the_same_world() -> None:
    """Half of the worlds are visited, and the other half are those with the ranks exchanged."""
    limits = replace(TWO, crashes=False, second_request=False, renewing_ranks=0)
    reduced = explore_jointly(limits).nets
    full = explore_jointly(limits, exchanges=False).nets
    assert {in_order(engines) for engines in full} == {in_order(engines) for engines in reduced}
    assert len(reduced) < 0.6 * len(full)


@each_planted_defect
def test_a_planted_defect_is_found(defect: Defect, what: str) -> None:
    """By the search of two ranks with everything, which ends at the first counterexample. Where no
    renewal takes part it comes sooner without any; with them there are all these worlds, and more.
    """
    renewing_ranks = 2 if "RENEWAL" in defect.name else 0
    with pytest.raises(Broken, match=what):
        explore_jointly(replace(TWO, renewing_ranks=renewing_ranks, defect=defect))


BELIEVED = replace(TWO, renewing_ranks=0, defect=Defect.REPEATED_RELEASE)


def test_a_release_that_is_believed_the_second_time_is_found() -> None:
    """Only this search finds it."""
    with pytest.raises(Broken, match="that another request reads"):
        explore_jointly(BELIEVED)


@pytest.mark.parametrize(
    "less", [{"ranks": 1}, {"crashes": False}, {"second_request": False}], ids=str
)
def test_a_release_that_is_believed_the_second_time_takes_all_of_it_to_find(
    less: dict[str, int],
) -> None:
    """Two ranks, of which one is done; a crash; a second request that has the blocks; and a
    repetition, for a rank sends but one release. Where one of them is missing, all is well."""
    explore_jointly(replace(BELIEVED, **less))
