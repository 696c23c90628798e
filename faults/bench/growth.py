"""What a run costs as it becomes larger: with requests, with engines, with the length of prompts.

Where cost is in proportion, the figure of each row is the same in all rows.
"""

from __future__ import annotations

from typing import Any

import msgspec

from faults.bench.measure import measure
from faults.bench.scenarios import with_requests, with_workload
from sim.scenario import Scenario, Topology

_REQUESTS_PER_PRODUCER, _TOGETHER_MS = 10, 20.0


def with_more_requests(scenario: Scenario, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """A point for each number of requests."""
    points = []
    for requests in sizes:
        figures = measure(with_requests(scenario, requests), 1).figures()
        points.append({**figures, "ms_per_request": figures["cpu_s"] / requests * 1e3})
    return points


def with_more_engines(scenario: Scenario, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """A point for each number of producers, with as many consumers and ten requests for each.

    The quiet phase sends a request over every way from a producer to a consumer, so its share,
    which is told apart, grows with the square.
    """
    points = []
    for engines in sizes:
        larger = with_workload(
            msgspec.structs.replace(
                scenario, topology=Topology(producers=engines, consumers=engines)
            ),
            requests=_REQUESTS_PER_PRODUCER * engines,
            interval_ms=_TOGETHER_MS / engines,
        )
        whole = measure(larger, 1).figures()
        without = measure(msgspec.structs.replace(larger, quiet_phase_s=0.0), 1).figures()
        quiet_s = whole["cpu_s"] - without["cpu_s"]
        points.append(
            {
                **whole,
                "producers": engines,
                "ms_per_producer": without["cpu_s"] / engines * 1e3,
                "quiet_ms_per_way": quiet_s / engines**2 * 1e3,
                "quiet_events": whole["events"] - without["events"],
            }
        )
    return points


def with_longer_prompts(scenario: Scenario, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """A point for each length. ``us_per_token`` is what each token beyond the first size costs."""
    points: list[dict[str, Any]] = []
    for tokens in sizes:
        longer = with_workload(scenario, prompt_tokens=(tokens, tokens))
        figures = measure(longer, 1).figures()
        point = {**figures, "prompt_tokens": tokens}
        point["ms_per_request"] = figures["cpu_s"] / figures["requests"] * 1e3
        if points:
            more = (tokens - sizes[0]) * figures["requests"]
            point["us_per_token"] = (figures["cpu_s"] - points[0]["cpu_s"]) / more * 1e6
        points.append(point)
    return points


def step_of_eight(scenario: Scenario, runs: int) -> dict[str, Any]:
    """What an engine step with eight running requests takes: of the processor, and, in wall time
    that others' load lengthens, outside of simulated processes."""
    tokens = scenario.workload.output_tokens[0]  # type: ignore[union-attr]
    half = with_workload(scenario, output_tokens=(tokens // 2, tokens // 2))
    long, short = measure(scenario, runs).figures(), measure(half, runs).figures()
    steps = long["engine_steps"] - short["engine_steps"]
    step_us = (long["cpu_s"] - short["cpu_s"]) / steps * 1e6
    outside_us = _outside_us(long) - _outside_us(short)
    return {
        **long,
        "steps_of_eight": steps,
        "us_per_step_of_eight": step_us,
        "testbed_us_per_step_of_eight": outside_us / steps,
    }


def _outside_us(figures: dict[str, Any]) -> float:
    us: float = figures["testbed_us_per_step"] * figures["engine_steps"]
    return us
