from __future__ import annotations

import weakref

from sim.run import TestBed, run
from sim.scenario import Scenario
from sim.scenario.workloads import UniformWorkload
from sim.world import World


def test_a_result_does_not_keep_its_world_in_memory() -> None:
    """A campaign keeps many results, and each world has engines and caches in it."""
    worlds: list[weakref.ref[World]] = []

    def note(bed: TestBed) -> None:
        worlds.append(weakref.ref(bed.world))

    scenario = Scenario(workload=UniformWorkload(2, (20, 40), (2, 2)))
    results = [run(scenario, prepare=note) for _ in range(2)]
    assert [result.outcome.verdict for result in results] == ["pass", "pass"]
    assert [world() for world in worlds] == [None, None]
    assert results[0].log.records, "the record outlives it"
