"""Runs a scenario several times and says how long it took.

A simulation is one thread, so its processor time is what it costs a core, and on a machine that
others use, too, it varies much less than wall time. Rates are per processor time, and the time
between runs, in which memory is freed, counts. Virtual against wall time is about wall time.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from faults.running import run
from sim.outcome import Outcome
from sim.probes import Probe
from sim.run import rehearse
from sim.scenario import Scenario
from sim.stopwatch import wall_clock

cpu_clock = time.process_time  # bound here, before the fence guards the clocks of a run


@dataclass(frozen=True)
class Timing:
    """One run."""

    outcome: Outcome
    start_up_cpu_s: float
    """From the beginning until the last engine was ready."""
    cpu_s: float
    wall_s: float


@dataclass(frozen=True)
class Series:
    """Runs of one scenario. ``cpu_s`` is that of all of them and of what lies between."""

    timings: list[Timing]
    cpu_s: float

    def figures(self) -> dict[str, Any]:
        """What goes into the document; seconds and microseconds are those of one run."""
        outcome = self.timings[0].outcome
        runs, steps = len(self.timings), outcome.engine_steps
        wall_s = median(t.wall_s for t in self.timings)
        outside_s = median(t.outcome.wall_s - t.outcome.guest_s for t in self.timings)
        return {
            "runs": runs,
            "verdict": outcome.verdict,
            "event_hash": outcome.event_hash,
            "requests": outcome.requests["total"],
            "runs_per_s_core": runs / self.cpu_s,
            "cpu_s": self.cpu_s / runs,
            "wall_s": wall_s,
            "start_up_cpu_s": median(t.start_up_cpu_s for t in self.timings),
            "engine_steps": steps,
            "cpu_us_per_step": self.cpu_s / runs / steps * 1e6,
            "testbed_us_per_step": outside_s / steps * 1e6,
            "events": outcome.events,
            "virtual_s": outcome.virtual_s,
            "virtual_per_wall": outcome.virtual_s / wall_s,
            "peak_memory_mib": peak_memory_mib(),
        }


class _Started(Probe):
    """Notes when the last engine was ready for the first time."""

    def __init__(self, engines: int) -> None:
        self._missing = engines
        self.cpu_s = 0.0

    def engine_started(self, engine: Any) -> None:
        self._missing -= 1
        if self._missing == 0:
            self.cpu_s = cpu_clock()


def measure(scenario: Scenario, runs: int) -> Series:
    """Run ``scenario`` ``runs`` times; the first run of its kind, which is slower, before that."""
    rehearse(scenario)
    begin_s = cpu_clock()
    timings = [_timed(scenario) for _ in range(runs)]
    return Series(timings, cpu_clock() - begin_s)


def _timed(scenario: Scenario) -> Timing:
    started = _Started(scenario.num_engines)
    cpu_s, wall_s = cpu_clock(), wall_clock()
    outcome = run(scenario, probe=started).result.outcome
    return Timing(outcome, started.cpu_s - cpu_s, cpu_clock() - cpu_s, wall_clock() - wall_s)


def peak_memory_mib() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
