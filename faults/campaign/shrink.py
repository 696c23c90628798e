"""Shrinking: the smallest scenario that still fails in the same way.

The same way is the same set of broken rules. Steps of all kinds (fewer faults, fewer and shorter
requests, smaller pools, fewer engines, plainer options, shorter times) are tried in turns, the
bold before the timid, until a whole turn brings nothing or the runs are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sim.errors import TestbedError, UsageError
from sim.kernel import Seed
from sim.scenario import InlineRequest, InlineWorkload, Scenario, Topology, workload_of
from sim.units import ns_to_seconds
from sim.workload import Segment

Fails = Callable[[Scenario], bool]
_LEAST_S = 0.001
_LEAST_QUIET_S = 1.0


@dataclass
class Shrinking:
    """A scenario on its way down. ``fails`` runs one and says whether it fails in the same way.

    ``cut_short`` says that the runs were used up while there was still something to try.
    """

    scenario: Scenario
    fails: Fails
    max_runs: int
    runs: int = 0
    cut_short: bool = False

    def run(self) -> Scenario:
        """The smallest scenario that was found."""
        self._try(with_inline_requests(self.scenario))
        while self._turn():
            pass
        return self.scenario

    def _turn(self) -> bool:
        """Every step once, each from where the last success has led; whether any succeeded."""
        before = self.scenario
        for steps in STEPS:
            self._take(steps)
        return self.scenario != before

    def _take(self, steps: Callable[[Scenario], Iterator[Scenario]]) -> None:
        """Steps of one kind as long as one succeeds."""
        while any(self._try(smaller) for smaller in steps(self.scenario)):
            pass

    def _try(self, smaller: Scenario) -> bool:
        if smaller == self.scenario:
            return False
        if self.runs >= self.max_runs:
            self.cut_short = True
            return False
        self.runs += 1
        try:
            is_same = self.fails(smaller)
        except (UsageError, TestbedError):  # a step may lead to what is no scenario at all
            return False
        if is_same:
            self.scenario = smaller
        return is_same


def with_inline_requests(scenario: Scenario) -> Scenario:
    """The same requests written out one by one, so that single ones can go."""
    specs = workload_of(scenario, Seed(scenario.seed).stream("workload"))
    requests = tuple(
        InlineRequest(
            spec.request_id, tuple(spec.prompt), spec.max_tokens, ns_to_seconds(spec.arrival_ns)
        )
        for spec in specs
    )
    return msgspec.structs.replace(scenario, workload=InlineWorkload(requests))


def _fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    for faults in _without_parts(scenario.faults):
        yield msgspec.structs.replace(scenario, faults=tuple(faults))


def _fewer_requests(scenario: Scenario) -> Iterator[Scenario]:
    workload = scenario.workload
    if isinstance(workload, InlineWorkload):
        for requests in _without_parts(workload.requests):
            if requests:
                yield _with_requests(scenario, requests)


def _smaller_pools(scenario: Scenario) -> Iterator[Scenario]:
    """Before requests go, as fewer of them fill a smaller pool."""
    blocks = scenario.engine.num_blocks
    if blocks is not None:
        smaller = msgspec.structs.replace(scenario.engine, num_blocks=blocks // 2 + 1)
        yield msgspec.structs.replace(scenario, engine=smaller)


def _shorter_requests(scenario: Scenario) -> Iterator[Scenario]:
    """All of them at once, first with a pool that they fill as before; then each by itself."""
    workload = scenario.workload
    if not isinstance(workload, InlineWorkload):
        return
    shorter = _with_requests(scenario, [_halved(request) for request in workload.requests])
    yield from _smaller_pools(shorter)
    yield shorter
    for number, request in enumerate(workload.requests):
        changed = [*workload.requests]
        changed[number] = _halved(request)
        yield _with_requests(scenario, changed)


def _halved(request: InlineRequest) -> InlineRequest:
    prompt = tuple(Segment(content, -(-count // 2)) for content, count in request.prompt)
    return msgspec.structs.replace(request, prompt=prompt, max_tokens=-(-request.max_tokens // 2))


def _fewer_engines(scenario: Scenario) -> Iterator[Scenario]:
    topology = scenario.topology
    if not topology.colocated and (topology.producers, topology.consumers) != (1, 1):
        smallest = msgspec.structs.replace(topology, producers=1, consumers=1)
        yield msgspec.structs.replace(scenario, topology=smallest)


def _plainer_options(scenario: Scenario) -> Iterator[Scenario]:
    yield msgspec.structs.replace(scenario, perturb=False)
    plain = {"tp_size": 1, "executor": "single-process"}
    for change in (plain, {"async_scheduling": False}, {"enable_prefix_caching": False}):
        engine = msgspec.structs.replace(scenario.engine, **change)
        yield msgspec.structs.replace(scenario, engine=engine)


def _shorter_times(scenario: Scenario) -> Iterator[Scenario]:
    """Arrivals, the quiet phase, and every time in seconds that a fault names."""
    workload = scenario.workload
    if isinstance(workload, InlineWorkload):
        at_once = [msgspec.structs.replace(request, arrival_s=0.0) for request in workload.requests]
        yield _with_requests(scenario, at_once)
    if scenario.quiet_phase_s > _LEAST_QUIET_S:
        yield msgspec.structs.replace(scenario, quiet_phase_s=scenario.quiet_phase_s / 2)
    for number, fault in enumerate(scenario.faults):
        changed = [*scenario.faults]
        changed[number] = _with_half_times(fault)
        yield msgspec.structs.replace(scenario, faults=tuple(changed))


def _with_half_times(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _with_half_times(inner, key) for key, inner in value.items()}
    is_time = name.endswith("_s") or name == "seconds"
    if is_time and isinstance(value, int | float) and value > _LEAST_S:
        return round(value / 2, 6)
    return value


STEPS = (
    _fewer_faults,
    _smaller_pools,
    _fewer_requests,
    _fewer_engines,
    _plainer_options,
    _shorter_requests,
    _shorter_times,
)


def _with_requests(scenario: Scenario, requests: Sequence[InlineRequest]) -> Scenario:
    return msgspec.structs.replace(scenario, workload=InlineWorkload(tuple(requests)))


def _without_parts(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Without one half, without the other, without quarters, and so on down to single items."""
    size = len(items) // 2 or 1
    while items and size:
        for begin in range(0, len(items), size):
            yield [*items[:begin], *items[begin + size :]]
        size //= 2


def size_of(scenario: Scenario) -> dict[str, int]:
    """What people see of the size of a scenario; blocks where their number is set."""
    specs = workload_of(scenario, Seed(scenario.seed).stream("workload"))
    blocks = scenario.engine.num_blocks
    return {
        "faults": len(scenario.faults),
        "requests": len(specs),
        "tokens": sum(spec.prompt_tokens + spec.max_tokens for spec in specs),
        "engines": _engines(scenario.topology),
        **({} if blocks is None else {"blocks": blocks}),
    }


def _engines(topology: Topology) -> int:
    return 1 if topology.colocated else topology.producers + topology.consumers
