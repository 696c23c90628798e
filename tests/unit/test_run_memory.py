from __future__ import annotations

import gc

import msgspec
import pytest

from sim.run import rehearse, run
from sim.scenario import Scenario
from sim.scenario.workloads import UniformWorkload
from sim.world import World

SMALL = Scenario(workload=UniformWorkload(2, (20, 40), (2, 2)))


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
    scenario = msgspec.structs.replace(SMALL, connector=connector)
    results = [run(scenario) for _ in range(2)]
    assert [result.outcome.verdict for result in results] == ["pass", "pass"]
    assert worlds() == before
    assert results[0].log.records, "the record outlives it"


def test_what_the_first_run_loaded_is_not_gone_through_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Collections between runs leave vLLM's modules alone: they are frozen, once for each kind of
    engine."""
    monkeypatch.setattr("sim.run._REHEARSED", set())
    gc.unfreeze()
    rehearse(SMALL)
    frozen = gc.get_freeze_count()
    assert frozen > 100_000
    rehearse(SMALL)
    assert gc.get_freeze_count() == frozen
