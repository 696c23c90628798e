"""The sections of the speed table, each a function that measures and returns plain figures."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from faults.bench import compare, growth, processor
from faults.bench.connectors import compared
from faults.bench.kernel import bare_simpy_events_per_s, kernel_events_per_s
from faults.bench.measure import measure
from faults.bench.profile import shares
from faults.bench.scenarios import (
    COMPARE,
    CONNECTORS,
    CONNECTORS_LONG,
    DECODE,
    FAULTED,
    FAULTED_GLM,
    GROWTH,
    GROWTH_ENGINES,
    GROWTH_PROMPTS,
    HYBRID,
    IDLE,
    KERNEL,
    STANDARD,
    TIMEOUTS,
    TRACE,
    TRACE_HOUR,
    fixed_scenario,
    with_requests,
    with_trace,
)
from faults.machine import probe
from sim.router.options import RouterOptions
from sim.scenario import Scenario


@dataclass(frozen=True)
class Effort:
    """How much is run. ``trace`` is a Mooncake trace, without which its sections are left out, and
    ``trace_requests`` how many of its requests make up the hour; all when not given."""

    runs: int = 20
    events: int = 200_000
    growth: tuple[int, ...] = (100, 1_000)
    engines: tuple[int, ...] = (1, 4, 16)
    prompts: tuple[int, ...] = (512, 2_048, 8_192, 32_768)
    pairs: tuple[int, ...] = compare.PAIRS
    messages: int = compare.MESSAGES
    trace: Path | None = None
    trace_requests: int | None = None


def measured(name: str, effort: Effort) -> dict[str, Any]:
    """The figures of section ``name``."""
    return _SECTIONS[name](effort)


def _standard(effort: Effort) -> dict[str, Any]:
    scenario = fixed_scenario(STANDARD)
    figures = measure(scenario, effort.runs).figures()
    return {**figures, "profile": shares(scenario, effort.runs)}


def _runs(name: str, effort: Effort) -> dict[str, Any]:
    return measure(fixed_scenario(name), effort.runs).figures()


def _compare(effort: Effort) -> dict[str, Any]:
    return compare.compared(effort.pairs, effort.messages)


def _kernel(effort: Effort) -> dict[str, Any]:
    return {
        "events": effort.events,
        "events_per_s": kernel_events_per_s(effort.events),
        "bare_simpy_events_per_s": bare_simpy_events_per_s(effort.events),
    }


def _growth(effort: Effort) -> dict[str, Any]:
    return {"points": growth.with_more_requests(fixed_scenario(GROWTH), effort.growth)}


def _growth_engines(effort: Effort) -> dict[str, Any]:
    return {"points": growth.with_more_engines(fixed_scenario(GROWTH), effort.engines)}


def _growth_prompts(effort: Effort) -> dict[str, Any]:
    return {"points": growth.with_longer_prompts(fixed_scenario(GROWTH_PROMPTS), effort.prompts)}


def _decode(effort: Effort) -> dict[str, Any]:
    return growth.step_of_eight(fixed_scenario(DECODE), max(1, effort.runs // 4))


def _timeouts(effort: Effort) -> dict[str, Any]:
    return timeout_figures(fixed_scenario(TIMEOUTS))


def timeout_figures(scenario: Scenario) -> dict[str, Any]:
    """One run through vLLM's connector and one through this project's."""
    through = ("moriio", "hybrid")
    runs = {name: msgspec.structs.replace(scenario, connector=name) for name in through}
    return {name: measure(run, 1).figures() for name, run in runs.items()}


def _idle(effort: Effort) -> dict[str, Any]:
    return idle_figures(fixed_scenario(IDLE))


def idle_figures(scenario: Scenario) -> dict[str, Any]:
    """A run that hardly does anything but wait. An empty step costs what it does when none is
    passed over, less what the same run costs without the wait."""
    stepping = msgspec.structs.replace(scenario, skip_empty_steps=False)
    waiting = measure(stepping, 1).figures()
    busy = measure(_without_hold(stepping), 1).figures()
    steps = waiting["engine_steps"] - busy["engine_steps"]
    empty_s = waiting["cpu_s"] - busy["cpu_s"]
    figures = {"empty_steps": steps, "us_per_empty_step": empty_s / steps * 1e6}
    return {**measure(scenario, 1).figures(), **figures}


def _without_hold(scenario: Scenario) -> Scenario:
    return msgspec.structs.replace(scenario, router=RouterOptions())


def _connectors(name: str, effort: Effort) -> dict[str, Any]:
    runs = max(1, effort.runs // 4)
    return {"runs": runs, "models": compared(fixed_scenario(name), runs)}


def _trace(effort: Effort) -> dict[str, Any]:
    assert effort.trace is not None
    return measure(with_trace(fixed_scenario(TRACE), effort.trace), 1).figures()


def _trace_hour(effort: Effort) -> dict[str, Any]:
    assert effort.trace is not None
    hour = with_trace(fixed_scenario(TRACE_HOUR), effort.trace)
    if effort.trace_requests is not None:
        hour = with_requests(hour, effort.trace_requests)
    return measure(hour, 1).figures()


_SECTIONS: dict[str, Callable[[Effort], dict[str, Any]]] = {
    STANDARD: _standard,
    HYBRID: partial(_runs, HYBRID),
    FAULTED: partial(_runs, FAULTED),
    FAULTED_GLM: partial(_runs, FAULTED_GLM),
    KERNEL: _kernel,
    COMPARE: _compare,
    GROWTH: _growth,
    GROWTH_ENGINES: _growth_engines,
    GROWTH_PROMPTS: _growth_prompts,
    DECODE: _decode,
    IDLE: _idle,
    TIMEOUTS: _timeouts,
    CONNECTORS: partial(_connectors, CONNECTORS),
    CONNECTORS_LONG: partial(_connectors, CONNECTORS_LONG),
    TRACE: _trace,
    TRACE_HOUR: _trace_hour,
}


def where_and_when() -> dict[str, Any]:
    """What the figures hold for."""
    machine = probe()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": processor.name(),
        "cores": machine.cores,
        "python": platform.python_version(),
        **{name: machine.installed.get(name, "absent") for name in ("vllm", "torch", "simpy")},
    }
