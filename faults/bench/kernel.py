"""Events a second: the kernel with tasks, records and hash, and SimPy without any of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from faults.bench.measure import cpu_clock
from sim.kernel import Kernel, Node, Process, Seed

_TASKS = 100


def kernel_events_per_s(events: int) -> float:
    """A hundred tasks sleep in turn; each wake-up is a switch and writes one record."""
    kernel = Kernel(Seed(0))
    process = Process(Node("n0", "10.0.0.1"), "core")

    def sleeper(number: int) -> None:
        for turn in range(events // _TASKS):
            kernel.sleep(1_000 + number)
            kernel.record("turn", number=number, turn=turn)

    for number in range(_TASKS):
        kernel.spawn(process, sleeper, number, name=f"sleeper-{number}")
    begin_s = cpu_clock()
    with kernel.running():
        kernel.run()
        kernel.log.digest()
        return events / (cpu_clock() - begin_s)


def bare_simpy_events_per_s(events: int) -> float:
    """A hundred generators sleep in turn, and that is all."""
    environment = simpy.Environment()

    def sleeper(number: int) -> Generator[simpy.Event, Any, None]:
        for _turn in range(events // _TASKS):
            yield environment.timeout(1_000 + number)

    for number in range(_TASKS):
        environment.process(sleeper(number))
    begin_s = cpu_clock()
    environment.run()
    return events / (cpu_clock() - begin_s)
