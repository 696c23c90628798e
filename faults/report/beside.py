"""What faults cost: latency and throughput of a run beside those of the same run without faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec
from markupsafe import Markup

from faults.report.axis import LinearAxis, LogAxis
from faults.report.latency import Request, throughput
from faults.report.plots import PLOT_LEFT, PLOT_WIDTH, stairs
from sim.scenario import Scenario
from sim.scenario.workloads import EPILOGUE
from sim.units import ns_to_seconds

_NAMES = ("this run", "without its faults")
_Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Beside:
    """A sentence for either side, and the plots of both; this run is the first side."""

    told: list[str]
    plots: list[Markup]


def without_faults(scenario: Scenario) -> Scenario:
    """``scenario`` with nothing injected, and no request held, aborted or retried."""
    router = msgspec.structs.replace(scenario.router, holds=(), aborts=(), retries=())
    return msgspec.structs.replace(scenario, faults=(), router=router)


def beside(requests: Sequence[Request], fault_free: Sequence[Request]) -> Beside:
    """Compares the workload's requests; those that only check the end of a run are left out."""
    sides = [
        [request for request in side if not request.name.startswith(EPILOGUE)]
        for side in (requests, fault_free)
    ]
    told = [
        f"{name}: {throughput(side) or 'no request ended'}"
        for name, side in zip(_NAMES, sides, strict=True)
    ]
    return Beside(told, [_latency(sides), _tokens(sides)])


def _latency(sides: Sequence[Sequence[Request]]) -> Markup:
    curves: list[_Points] = []
    for side in sides:
        took = sorted(ns_to_seconds(request.lasted_ns(0)) for request in side if request.is_good)
        curves.append([(value, number / len(side)) for number, value in enumerate(took, 1)])
    axis = LogAxis([place for curve in curves for place, _ in curve], PLOT_LEFT, PLOT_WIDTH)
    label = "share of all requests that were answered within so long"
    return stairs(list(zip(_NAMES, curves, strict=True)), axis, (1.0, "100 %"), label)


def _tokens(sides: Sequence[Sequence[Request]]) -> Markup:
    curves = [_tokens_over_time(side) for side in sides]
    last_s = max((curve[-1][0] for curve in curves if curve), default=1.0)
    most = max((curve[-1][1] for curve in curves if curve), default=0.0)
    label = "tokens of requests that were answered, since the first arrived"
    axis = LinearAxis(last_s, PLOT_LEFT, PLOT_WIDTH)
    return stairs(list(zip(_NAMES, curves, strict=True)), axis, (most, f"{most:.0f}"), label)


def _tokens_over_time(requests: Sequence[Request]) -> _Points:
    first_ns = min((request.arrived_ns for request in requests), default=0)
    ended = sorted(
        (request.ended_ns, request.tokens)
        for request in requests
        if request.is_good and request.ended_ns is not None
    )
    sums = accumulate(tokens for _, tokens in ended)
    return [
        (ns_to_seconds(end_ns - first_ns), float(total))
        for (end_ns, _), total in zip(ended, sums, strict=True)
    ]
