"""The search through every world of `protocol_model`, breadth first."""

from __future__ import annotations

from array import array
from collections import deque
from pathlib import Path

from protocol_model import successors, without_inert
from protocol_world import Limits, World, at_rest, require, start


def explore(limits: Limits) -> tuple[int, int]:
    """Visit every reachable world; (worlds, worlds at rest).

    Raises:
        Broken: an invariant does not hold in some world, or some world never comes to rest.
    """
    numbers = {start(limits): 0}
    predecessors = [array("I")]  # by what is not a fault; of each world, by number
    resting: list[int] = []
    queue = deque(numbers)
    while queue:
        world = queue.popleft()
        number = numbers[world]
        if at_rest(world):
            resting.append(number)
        for successor in successors(world, limits):
            after = without_inert(successor, limits)
            if after not in numbers:
                numbers[after] = len(numbers)
                predecessors.append(array("I"))
                queue.append(after)
            if not is_fault(world, after):
                predecessors[numbers[after]].append(number)
    stuck = first_stuck(predecessors, resting)
    require(stuck is None, f"this world never comes to rest: {list(numbers)[stuck or 0]}")
    return len(numbers), len(resting)


DOCUMENT = Path(__file__).parents[2] / "docs/protocol.md"


def check_search(limits: Limits, expected: int) -> None:
    """Search; the model is what it was, and its size what docs/protocol.md says."""
    worlds, resting = explore(limits)
    print(f"{worlds:,} worlds, {resting:,} of them at rest")
    assert worlds == expected, "the model has changed: correct the number here and in the document"
    assert resting > 0
    assert f"{worlds:,}" in DOCUMENT.read_text()


def is_fault(before: World, after: World) -> bool:
    """Whether something went wrong in between; coming to rest must not depend on that."""
    went_down = (before.producer_up, before.consumer_up) > (after.producer_up, after.consumer_up)
    return went_down or before.lost != after.lost or before.repeated != after.repeated


def first_stuck(predecessors: list[array[int]], resting: list[int]) -> int | None:
    """The number of a world from which no world at rest can be reached."""
    reaches = bytearray(len(predecessors))
    queue = deque(resting)
    for number in resting:
        reaches[number] = 1
    while queue:
        for before in predecessors[queue.popleft()]:
            if not reaches[before]:
                reaches[before] = 1
                queue.append(before)
    return next((number for number, does in enumerate(reaches) if not does), None)
