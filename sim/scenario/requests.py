"""From a scenario to its requests."""

from __future__ import annotations

import random

from sim.errors import MisplacedError, UsageError
from sim.hints import nearest
from sim.model.presets import get_preset
from sim.scenario.capacity import longest_request
from sim.scenario.types import Scenario
from sim.scenario.workloads import InlineWorkload, UniformWorkload
from sim.workload import RequestSpec


def workload_of(scenario: Scenario, rng: random.Random) -> list[RequestSpec]:
    """The requests of ``scenario``; ``rng`` is the seed's stream for workloads.

    Raises UsageError when a trace cannot be read, when a request is longer than the model's
    context, or when the router is to do something to a request that there is not.
    """
    requests = scenario.workload.make(rng)
    limit = get_preset(scenario.model).max_positions
    if longest_request(requests) > limit:
        longest = max(requests, key=lambda spec: spec.prompt_tokens + spec.max_tokens)
        raise UsageError(
            f"workload: {longest.request_id} has {longest_request(requests)} tokens, output "
            f"included, but {scenario.model} has room for {limit}; {_how_to_shorten(scenario)}"
        )
    names = [request.request_id for request in requests]
    known = dict.fromkeys(names)
    for keys, name in scenario.router.named_requests():
        if name not in known:
            there = f"there are {len(names)}: {names[0]} to {names[-1]}"
            if len(names) == 1:
                there = f"the only one is {names[0]}"
            raise MisplacedError(
                f"router: no request is called {name!r}{nearest(name, names)}; {there}",
                ("router", *keys),
            )
    return requests


def _how_to_shorten(scenario: Scenario) -> str:
    match scenario.workload:
        case InlineWorkload():
            return "shorten its prompt or its max_tokens"
        case UniformWorkload():
            return "lower prompt_tokens or output_tokens"
        case _:
            return "set length_scale or max_prompt_tokens"
