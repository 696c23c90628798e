"""The same scenario and seed give the same history, event by event."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sim.probes import Probe
from sim.run import TestBed, run
from sim.scenario import GeneratedWorkload, Scenario
from sim.units import MS

ROOT = Path(__file__).resolve().parents[2]
TINY = Scenario(workload=GeneratedWorkload(requests=3, length_scale=0.02, rate_rps=50))


def event_hash(scenario: Scenario, prepare: Any = None) -> str:
    return run(scenario, prepare=prepare).outcome.event_hash


def test_twenty_seeds_five_times_one_hash_each() -> None:
    """20 seeds, 5 runs each: one hash per seed, and different seeds differ."""
    hashes = {}
    for seed in range(20):
        scenario = msgspec.structs.replace(TINY, seed=seed)
        hashes[seed] = {event_hash(scenario) for _ in range(5)}
    assert [len(found) for found in hashes.values()] == [1] * 20
    assert len(set.union(*hashes.values())) == 20


def test_what_ran_before_does_not_change_a_run() -> None:
    """Three kinds of runs, there and back in one process: what outlives a run has no say."""
    kinds: list[dict[str, Any]] = [{}, {"connector": "hybrid"}, {"model": "gemma-swa"}]
    scenarios = [msgspec.structs.replace(TINY, **kind) for kind in kinds]
    there = [event_hash(scenario) for scenario in scenarios]
    back = [event_hash(scenario) for scenario in reversed(scenarios)]
    assert back == there[::-1]


def order_of_engines(scenario: Scenario) -> tuple[tuple[str, str], ...]:
    log = run(scenario).log
    return tuple((r.actor, r.kind) for r in log.records if r.kind != "violation")


def test_perturbation_gives_other_orders_by_seed_and_each_replays() -> None:
    """With the workload fixed, seeds only change the order of events; each order replays."""
    from sim.scenario import UniformWorkload

    fixed = UniformWorkload(
        requests=4, prompt_tokens=(64, 64), output_tokens=(3, 3), interval_ms=0.0
    )
    base = msgspec.structs.replace(TINY, workload=fixed, perturb=True)
    seeds = [msgspec.structs.replace(base, seed=seed) for seed in range(8)]
    orders = [order_of_engines(scenario) for scenario in seeds]
    assert len(set(orders)) > 1
    assert [order_of_engines(scenario) for scenario in seeds] == orders
    hashes = [event_hash(scenario) for scenario in seeds]
    assert len(set(hashes)) == 8
    assert [event_hash(scenario) for scenario in seeds] == hashes


class Crash(Probe):
    """Crashes an engine a moment after the second request started."""

    def __init__(self, bed: TestBed, name: str) -> None:
        self._bed = bed
        self._engine = next(engine for engine in bed.engines if engine.name == name)
        self._started = 0

    def request_started(self, request_id: str) -> None:
        self._started += 1
        if self._started == 2:
            self._bed.kernel.call_later(10 * MS, self._engine.crash)


@pytest.mark.parametrize("name", ["p0", "d0"])
@pytest.mark.parametrize("perturb", [False, True])
def test_a_crash_in_the_middle_replays(name: str, perturb: bool) -> None:
    """Killed tasks have no effect that could differ; the quiet phase restarts what was killed."""
    scenario = msgspec.structs.replace(TINY, perturb=perturb)

    def prepare(bed: TestBed) -> None:
        bed.world.probes.add(Crash(bed, name))

    first = run(scenario, prepare=prepare)
    kinds = [record.kind for record in first.log.records]
    assert "process-crashed" in kinds
    assert kinds.count("engine-started") == 3
    assert event_hash(scenario, prepare) == first.outcome.event_hash


def test_garbage_collection_does_not_change_a_run() -> None:
    """Collecting before, between and after runs changes nothing inside one."""
    import gc

    first = event_hash(TINY)
    gc.collect()
    junk = [[i] for i in range(100_000)]
    assert event_hash(TINY) == first
    del junk
    gc.collect()
    assert event_hash(TINY) == first


def test_objects_in_the_words_of_an_exception_do_not_change_a_run() -> None:
    """Their addresses differ from run to run; an engine's last words are part of the record."""

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise KeyError(object())

    def prepare(bed: TestBed) -> None:
        def break_scheduler() -> None:
            loop = bed.consumers[0].loop
            assert loop is not None
            loop.scheduler.schedule = fail

        bed.kernel.call_later(20 * MS, break_scheduler)

    first = run(TINY, prepare=prepare)
    died = [record for record in first.log.records if record.kind == "engine-died"]
    (reason,) = [record.fields["reason"] for record in died]
    assert reason.startswith("KeyError: <object object at 0x…>, raised at test_runs:")
    kept = [object() for _ in range(1_000)]
    assert event_hash(TINY, prepare) == first.outcome.event_hash
    del kept


def test_another_hash_seed_is_refused() -> None:
    """A library user whose process iterates sets in another order is told what to do."""
    code = "from sim.run import run; from sim.scenario import Scenario; run(Scenario())"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert "started with PYTHONHASHSEED=0" in done.stderr
