from __future__ import annotations

import gc

import pytest

from sim.run import run
from sim.scenario import Scenario
from sim.scenario.workloads import UniformWorkload
from sim.world import World


def worlds() -> int:
    """How many there are in memory; a weak reference would not tell, which dies before its world
    if a finalizer brings that back."""
    return sum(isinstance(thing, World) for thing in gc.get_objects())


@pytest.mark.parametrize("connector", ["moriio", "hybrid"])
def test_a_run_leaves_no_world_in_memory(connector: str) -> None:
    """Each world has engines and caches in it. Nobody holds it, also no result, of which a campaign
    keeps many, and no finalizer of a socket; so one collection frees it."""
    while gc.collect():
        pass  # what tests before this one left
    before = worlds()
    scenario = Scenario(connector=connector, workload=UniformWorkload(2, (20, 40), (2, 2)))
    results = [run(scenario) for _ in range(2)]
    assert [result.outcome.verdict for result in results] == ["pass", "pass"]
    assert worlds() == before
    assert results[0].log.records, "the record outlives it"
