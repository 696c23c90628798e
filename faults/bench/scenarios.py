"""The fixed scenarios that come with the bench, by name."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sim.scenario import Scenario, load

STANDARD, GROWTH, IDLE, TRACE = "standard-fault-free", "growth", "idle", "trace-100"
HYBRID = "hybrid-standard"
KERNEL = "kernel"
CONNECTORS, CONNECTORS_LONG = "connectors", "connectors-long"
SECTIONS = (STANDARD, HYBRID, KERNEL, GROWTH, IDLE, CONNECTORS, CONNECTORS_LONG, TRACE)

_DIRECTORY = Path(__file__).parent


def fixed_scenario(name: str) -> Scenario:
    """The scenario called ``name``, one of the constants above."""
    return load(_DIRECTORY / f"{name}.yaml")


def with_requests(scenario: Scenario, requests: int) -> Scenario:
    """The same with another number of requests."""
    workload = msgspec.structs.replace(scenario.workload, requests=requests)
    return msgspec.structs.replace(scenario, workload=workload)


def with_trace(scenario: Scenario, path: Path) -> Scenario:
    """The same with the trace at ``path``."""
    workload = msgspec.structs.replace(scenario.workload, path=str(path.resolve()))
    return msgspec.structs.replace(scenario, workload=workload)
