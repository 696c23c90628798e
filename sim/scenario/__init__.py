"""Scenarios: a run as data, its file, and the requests that follow from it."""

from __future__ import annotations

from sim.scenario.capacity import (
    check_memory,
    default_num_blocks,
    longest_request,
    require_usable_block,
)
from sim.scenario.file import dumps, load, loads, with_settings
from sim.scenario.hardware_file import find_fabric
from sim.scenario.requests import workload_of
from sim.scenario.types import SCHEMA_VERSION, Scenario, Topology
from sim.scenario.workloads import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    TraceWorkload,
    UniformWorkload,
    Workload,
)

__all__ = [
    "SCHEMA_VERSION",
    "GeneratedWorkload",
    "InlineRequest",
    "InlineWorkload",
    "Scenario",
    "Topology",
    "TraceWorkload",
    "UniformWorkload",
    "Workload",
    "check_memory",
    "default_num_blocks",
    "dumps",
    "find_fabric",
    "load",
    "loads",
    "longest_request",
    "require_usable_block",
    "with_settings",
    "workload_of",
]
