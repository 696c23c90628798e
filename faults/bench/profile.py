"""Where the time of a run goes, by part of the code.

A timer interrupts the run every millisecond and notes the innermost frame that belongs to a
known part; libraries (numpy, torch, queue, ...) count for whoever calls them. Unlike a tracing
profiler this does not slow down code that makes many calls, and it does not lose its way when
tasks are switched.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sim.run import rehearse, run
from sim.scenario import Scenario

INTERVAL_S = 0.001

# The first prefix that fits a module's name decides.
_PARTS = (
    ("guest.", "connector, hooks"),
    ("vllm.distributed.", "connector, hooks"),
    ("vllm.v1.core.", "vLLM scheduler"),
    ("vllm.", "vLLM engine loop, config"),
    ("sim.model.content", "model contents"),
    ("sim.model.verify", "model contents"),
    ("sim.engine.forward", "model contents"),
    ("sim.engine.memory", "model contents"),
    ("sim.engine.owners", "model contents"),
    ("sim.workload", "router, workload"),
    ("sim.router", "router, workload"),
    ("sim.oracles", "oracles"),
    ("sim.probes", "oracles"),
    ("sim.model.footprint", "oracles"),
    ("sim.engine.landings", "oracles"),
    ("sim.fabric", "fabric, network"),
    ("sim.network", "fabric, network"),
    ("sim.guest", "facades, loader"),
    ("sim.kernel", "kernel"),
    ("simpy", "kernel"),
    ("sim.", "simulated worker, set-up"),
)
OTHER = "between runs"


class Sampler:
    """Counts the parts in which it found the program.

    ``part_of`` names the part that a frame works for.
    """

    def __init__(self, part_of: Callable[[FrameType | None], str]) -> None:
        self.found: Counter[str] = Counter()
        self._part_of = part_of

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample within."""
        before = signal.signal(signal.SIGALRM, self._interrupted)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _interrupted(self, _number: int, frame: FrameType | None) -> None:
        self.found[self._part_of(frame)] += 1


def part_of(frame: FrameType | None) -> str:
    """The part that ``frame`` works for."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        for prefix, part in _PARTS:
            if name.startswith(prefix):
                return part
        frame = frame.f_back
    return OTHER


def shares(scenario: Scenario, runs: int) -> dict[str, Any]:
    """How much of ``runs`` runs each part takes, the largest first."""
    rehearse(scenario)
    sampler = Sampler(part_of)
    with sampler.running():
        for _ in range(runs):
            run(scenario)
    total = max(1, sampler.found.total())
    return {
        "samples": sampler.found.total(),
        "shares": {part: count / total for part, count in sampler.found.most_common()},
    }
