"""Workloads: requests with arrival times, lengths and prompts that share prefixes."""

from __future__ import annotations

from sim.workload.checks import WorkloadError
from sim.workload.generator import generate, uniform
from sim.workload.records import TraceError
from sim.workload.request import RequestSpec, Segment, prompt_token_ids
from sim.workload.scaling import scale
from sim.workload.summary import WorkloadSummary, describe, prefix_share
from sim.workload.trace import load_trace

__all__ = [
    "RequestSpec",
    "Segment",
    "TraceError",
    "WorkloadError",
    "WorkloadSummary",
    "describe",
    "generate",
    "load_trace",
    "prefix_share",
    "prompt_token_ids",
    "scale",
    "uniform",
]
