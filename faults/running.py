"""Runs a scenario with its faults: what ``sim.run`` does, and the nemesis beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from faults.coverage import FaultReport, Table
from faults.nemesis import Nemesis
from faults.schedule import check_names, decode
from sim import run as sim_run
from sim.outcome import RunResult
from sim.probes import Probe
from sim.run import Prepare, TestBed, Watch, freeing_worlds, injected_by, run_and_leave
from sim.scenario import Scenario


@dataclass(frozen=True)
class FaultedRun:
    """The result of a run, and what became of its faults."""

    result: RunResult
    faults: list[FaultReport] = field(default_factory=list)
    coverage: Table = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """What a run's JSON has besides its outcome."""
        return {"faults": msgspec.to_builtins(self.faults), "fault_coverage": self.coverage}


def run(
    scenario: Scenario,
    *,
    prepare: Prepare | None = None,
    probe: Probe | None = None,
    watch: Watch | None = None,
) -> FaultedRun:
    """Run ``scenario`` once, and inject its faults.

    Raises:
        UsageError: as ``sim.run.run``, and for faults that are not accepted or aimed at nobody.
        TestbedError: the testbed itself failed.
    """
    faults = decode(scenario.faults, source="the scenario")
    if not faults:
        return FaultedRun(sim_run.run(scenario, prepare=prepare, probe=probe, watch=watch))
    nemesis: list[Nemesis] = []

    def prepare_all(bed: TestBed) -> None:
        if prepare is not None:
            prepare(bed)
        requests = [request.request_id for request in bed.requests]
        check_names(faults, [engine.name for engine in bed.engines], requests)
        bed.take_faults()
        nemesis.append(Nemesis(bed, faults))

    with freeing_worlds():
        result = run_and_leave(scenario, prepare=prepare_all, probe=probe, watch=watch)
        result = replace(result, injected=injected_by(prepare))
        faulted = FaultedRun(result, nemesis[0].report(), nemesis[0].table())
        nemesis.clear()  # it holds the world
    return faulted
