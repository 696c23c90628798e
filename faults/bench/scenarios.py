"""The fixed scenarios that come with the bench, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sim.scenario import Scenario, load

STANDARD, GROWTH, IDLE, TRACE = "standard-fault-free", "growth", "idle", "trace-100"
HYBRID = "hybrid-standard"
FAULTED, FAULTED_GLM = "standard", "standard-glm-flash"
TIMEOUTS, TRACE_HOUR, DECODE = "timeouts", "trace-hour", "decode"
GROWTH_ENGINES, GROWTH_PROMPTS = "growth-engines", "growth-prompts"
KERNEL, COMPARE = "kernel", "compare"
CONNECTORS, CONNECTORS_LONG = "connectors", "connectors-long"
SECTIONS = (
    STANDARD,
    HYBRID,
    FAULTED,
    FAULTED_GLM,
    KERNEL,
    COMPARE,
    GROWTH,
    GROWTH_ENGINES,
    GROWTH_PROMPTS,
    DECODE,
    IDLE,
    TIMEOUTS,
    CONNECTORS,
    CONNECTORS_LONG,
    TRACE,
    TRACE_HOUR,
)
OF_TRACE = (TRACE, TRACE_HOUR)

_DIRECTORY = Path(__file__).parent


def fixed_scenario(name: str) -> Scenario:
    """The scenario called ``name``, one of the constants above."""
    return load(_DIRECTORY / f"{name}.yaml")


def with_requests(scenario: Scenario, requests: int) -> Scenario:
    """The same with another number of requests."""
    return with_workload(scenario, requests=requests)


def with_trace(scenario: Scenario, path: Path) -> Scenario:
    """The same with the trace at ``path``."""
    return with_workload(scenario, path=str(path.resolve()))


def with_workload(scenario: Scenario, **changes: Any) -> Scenario:
    """The same with fields of the workload changed."""
    workload = msgspec.structs.replace(scenario.workload, **changes)
    return msgspec.structs.replace(scenario, workload=workload)
