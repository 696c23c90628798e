"""The types of the public interface, gathered from where they live; see ``faults``."""

from __future__ import annotations

from faults.campaign.result import SeedResult
from faults.coverage import FaultReport
from faults.results import CampaignRun, RuleBroken, Run
from faults.schedule import with_faults
from sim.engine.options import EngineOptions
from sim.errors import TestbedError, UsageError
from sim.fabric import FabricProfile
from sim.model.speculation import Speculation
from sim.oracles import Violation
from sim.outcome import Outcome
from sim.router.options import Abort, Hold, Retry, RouterOptions
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    TraceWorkload,
    UniformWorkload,
    Workload,
    dumps,
    with_settings,
)

__all__ = [
    "Abort",
    "CampaignRun",
    "EngineOptions",
    "FabricProfile",
    "FaultReport",
    "GeneratedWorkload",
    "Hold",
    "InlineRequest",
    "InlineWorkload",
    "Outcome",
    "Retry",
    "RouterOptions",
    "RuleBroken",
    "Run",
    "Scenario",
    "SeedResult",
    "Speculation",
    "TestbedError",
    "Topology",
    "TraceWorkload",
    "UniformWorkload",
    "UsageError",
    "Violation",
    "Workload",
    "dumps",
    "with_faults",
    "with_settings",
]
