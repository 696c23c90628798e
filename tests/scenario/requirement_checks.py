"""One scenario for each requirement that a run can show, and what a connector has to do in it.

The same scenario is run with this project's connector and with upstream's; docs/requirements.md
says how upstream's ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from variants import Settings, alone, conversations, edges, shared, together, while_decoding

import faults
from faults.running import run
from faults.schedule import parse
from sim.errors import UsageError
from sim.model.presets import PRESETS, ModelPreset
from sim.outcome import Outcome
from sim.scenario import InlineRequest, InlineWorkload, Scenario, Workload, with_settings
from sim.scenario.file import load
from sim.workload import Segment


def all_served(outcome: Outcome) -> list[str]:
    return [] if _others(outcome, "length") == 0 else ["requests-failed"]


def one_failed(outcome: Outcome) -> list[str]:
    return [] if _others(outcome, "length") == 1 else ["requests-failed"]


def all_refused(outcome: Outcome) -> list[str]:
    return [] if _others(outcome, "error") == 0 else ["wrongly-served"]


def all_ended(outcome: Outcome) -> list[str]:
    return [] if outcome.requests["unfinished"] == 0 else ["requests-unfinished"]


def _others(outcome: Outcome, kind: str) -> int:
    """How many requests did not end so."""
    return outcome.requests["total"] - outcome.requests.get(kind, 0)


SCENARIOS = Path(faults.__file__).parent / "scenarios"


@dataclass(frozen=True)
class Check:
    """What is run for a requirement.

    ``expects`` names what is wrong beside the rules that were broken; ``refusal`` is the message
    that an engine has to refuse to start with, where that is what is required; ``excused`` are
    rules that the scenario breaks for every connector.
    """

    scenario: Scenario
    settings: Settings = field(default_factory=dict)
    fault: str | None = None
    expects: Callable[[Outcome], list[str]] = all_served
    refusal: str | None = None
    excused: frozenset[str] = frozenset()

    def verdict(self, connector: str) -> str:
        """``green``, ``red`` with what went wrong, or ``refused`` with the message."""
        try:
            outcome = self._outcome(connector)
        except UsageError as error:
            message = str(error)
            is_required = self.refusal is not None and self.refusal in message
            return "green" if is_required else f"refused: {message}"
        if self.refusal is not None:
            return "red: started"
        found = {violation.oracle for violation in outcome.violations} - self.excused
        wrong = sorted({*found, *self.expects(outcome)})
        return f"red: {', '.join(wrong)}" if wrong else "green"

    def _outcome(self, connector: str) -> Outcome:
        scenario = with_settings(self.scenario, {"connector": connector, **self.settings})
        if self.fault is not None:
            faults: list[Any] = [msgspec.to_builtins(parse(self.fault))]
            scenario = msgspec.structs.replace(scenario, faults=faults)
        return run(scenario).result.outcome


def single_tokens(preset: ModelPreset) -> Workload:
    """Prompts of one token."""
    return InlineWorkload(
        tuple(InlineRequest(f"req-{n}", (Segment(n, 1),), 4, arrival_s=0.1 * n) for n in range(4))
    )


def of(model: str, workload: Callable[[ModelPreset], Workload]) -> Scenario:
    return Scenario(model=model, workload=workload(PRESETS[model]))


def shipped(name: str) -> Scenario:
    return load(SCENARIOS / f"{name}.yaml")


_SHORT = "{defer_timeout: 3, transfer_timeout: 4}"
_ABORTS = (
    "[{request: req-0, on_phase: queued_at_p}, {request: req-1, on_phase: prefill}, "
    "{request: req-2, on_phase: handoff}, {request: req-3, on_phase: queued_at_d}, "
    "{request: req-4, on_phase: allocated}, {request: req-5, on_phase: decode}]"
)
_EVERY_READ = "completion-error:request=req-1,count=1000"
_SLOW_DRAFTER = {
    "speculation.method": "dspark",
    "step_times.draft_us": "20000",
    "router.hand_off_latency_us": "0",
}

CHECKS: dict[str, Check] = {
    "R1": Check(of("glm-flash", alone)),
    "R3": Check(of("qwen-hybrid", alone), {"speculation.method": "mtp"}),
    "R5": Check(of("llama", alone), {"extra_config": "{transfer_timeuot: 3}"}, refusal="timeuot"),
    "R6": Check(of("qwen-hybrid", shared)),
    "R7": Check(of("gemma-swa", edges)),
    "R8": Check(of("qwen-hybrid", conversations)),
    "R9": Check(of("kimi-linear", edges)),
    "R10": Check(
        of("llama", alone),
        {"extra_config": _SHORT},
        fault="wrong-params:wrong=foreign-blocks",
        expects=one_failed,
    ),
    "R11": Check(of("kimi-linear", single_tokens)),
    "R12": Check(of("kimi-linear", together)),
    "R13": Check(of("kimi-linear", shared)),
    "R14": Check(of("kimi-linear", while_decoding)),
    "R15": Check(
        of("llama", alone),
        {"workload.requests": "2", "quiet_phase_s": "5"},
        fault="disagreement:node=d0,geometry=real",
        expects=all_refused,
        excused=frozenset({"liveness"}),
    ),
    "R16": Check(of("llama", alone), fault=_EVERY_READ, expects=one_failed),
    "R17": Check(
        of("llama", alone),
        {"router.aborts": _ABORTS, "quiet_phase_s": "5", "extra_config": _SHORT},
        expects=all_ended,
    ),
    "R19": Check(of("kimi-linear", alone), _SLOW_DRAFTER, fault="late-device-writes:count=100"),
    "S1": Check(shipped("late-hand-off"), expects=all_ended),
    "S2": Check(shipped("busy-consumer")),
    "S4": Check(
        of("llama", alone), fault="crash:node=p0,phase=handoff,nth=2,for_s=1", expects=all_ended
    ),
    "S5": Check(
        of("llama", together),
        {"extra_config": "{transfer_timeout: 2, defer_timeout: 3}", "quiet_phase_s": "60"},
        fault="late-landing:by_s=10",
        expects=all_ended,
    ),
    "S6": Check(of("llama", alone), fault="control-plane-silent", expects=all_ended),
}
