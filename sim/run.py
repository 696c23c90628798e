"""One run, from a scenario to its outcome."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Protocol

import msgspec

from sim.errors import UsageError
from sim.outcome import RunResult
from sim.probes import Probe
from sim.router.options import RouterOptions
from sim.scenario import InlineRequest, InlineWorkload, Scenario
from sim.stopwatch import wall_clock
from sim.testbed import TestBed
from sim.workload import Segment

__all__ = ["Prepare", "RunResult", "TestBed", "freeing_worlds", "rehearse", "run", "run_and_leave"]


class Watch(Protocol):
    """Somebody who looks on while a world runs and changes nothing: progress, a watchdog."""

    def __call__(self, bed: TestBed) -> AbstractContextManager[None]: ...


class Prepare(Protocol):
    """What a caller does to a world before its engines start: rules, schedules, probes."""

    def __call__(self, bed: TestBed) -> None: ...


def run(
    scenario: Scenario,
    *,
    prepare: Prepare | None = None,
    probe: Probe | None = None,
    watch: Watch | None = None,
) -> RunResult:
    """Run ``scenario`` once.

    Args:
        scenario: the run as data.
        prepare: called before the engines start, to bring along what breaks things.
        probe: one more observer.
        watch: entered around the run, and around the rehearsal before it.

    Raises:
        UsageError: the scenario does not fit the model, an engine refuses to start with it, or
            this process has another hash seed than all runs have.
        TestbedError: the testbed itself failed.
    """
    with freeing_worlds():
        return run_and_leave(scenario, prepare=prepare, probe=probe, watch=watch)


def run_and_leave(
    scenario: Scenario,
    *,
    prepare: Prepare | None = None,
    probe: Probe | None = None,
    watch: Watch | None = None,
) -> RunResult:
    """As ``run``, for callers that still hold on to the world, within ``freeing_worlds``."""
    _require_hash_seed()
    rehearse(scenario, watch)
    return _run(scenario, prepare, probe, watch)


@contextmanager
def freeing_worlds() -> Iterator[None]:
    """At the end, free the worlds that nobody holds on to any more: they are full of cycles, and
    would pile up until Python saw to it. Before that Python would only go through them in vain."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        if collecting:
            gc.enable()


def _require_hash_seed() -> None:
    """vLLM iterates sets of strings, so the order of events depends on the hash seed."""
    if sys.flags.hash_randomization:
        raise UsageError(
            "runs need a process that was started with PYTHONHASHSEED=0, or they would not "
            "replay; faultlab's command line sees to that by itself"
        )


def _run(
    scenario: Scenario, prepare: Prepare | None, probe: Probe | None, watch: Watch | None
) -> RunResult:
    begin = wall_clock()
    bed = TestBed(scenario)
    if probe is not None:
        bed.world.probes.add(probe)
    with _watched(bed, watch), bed.world.running():
        if prepare is not None:
            prepare(bed)
        if scenario.faults and not bed.faults_taken:
            raise UsageError(
                f"the scenario has {len(scenario.faults)} faults, and nobody injects them; "
                "run it with faults.running.run"
            )
        bed.serve()
        result = bed.result(wall_clock() - begin)
    return replace(result, injected=injected_by(prepare))


def injected_by(prepare: Prepare | None) -> tuple[str, ...]:
    """What to call code that takes part in a run besides its scenario."""
    if prepare is None:
        return ()
    name = getattr(prepare, "__qualname__", type(prepare).__qualname__)
    return (f"{prepare.__module__}.{name}",)


def _watched(bed: TestBed, watch: Watch | None) -> AbstractContextManager[None]:
    return nullcontext() if watch is None else watch(bed)


_REHEARSED: set[tuple[object, ...]] = set()  # in this interpreter: a cache, never state


def rehearse(scenario: Scenario, watch: Watch | None = None) -> None:
    """Serve one small request in a world that is thrown away, once per kind of engine.

    vLLM imports many modules when it first needs them, and fills caches. That happens once in
    the life of an interpreter, so without this the first run would differ from all others.
    """
    kind = (
        scenario.model,
        scenario.geometry,
        scenario.connector,
        scenario.producer_connector,
        scenario.overlay,
        scenario.topology.colocated,
        scenario.engine.executor,
        scenario.engine.tp_size,
    )
    if kind in _REHEARSED:
        return
    _REHEARSED.add(kind)
    small = InlineWorkload((InlineRequest("rehearsal", (Segment(0, 40),), max_tokens=3),))
    rehearsal = msgspec.structs.replace(
        scenario,
        workload=small,
        router=RouterOptions(),
        perturb=False,
        quiet_phase_s=0.0,
        faults=(),
    )
    bed = TestBed(rehearsal)
    with _watched(bed, watch), bed.world.running(), suppress(UsageError):
        bed.serve()  # what is refused here the run itself will say
    del bed
    # What is left stays for good, and need not be gone through again after each run.
    gc.collect()
    gc.freeze()
