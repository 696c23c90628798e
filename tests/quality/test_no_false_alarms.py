"""Runs in which nothing is wrong, at the edges of what a scenario may ask for, stay clean."""

from __future__ import annotations

import msgspec

from sim.engine.options import EngineOptions
from sim.engine.timing import StepTimes
from sim.run import run
from sim.scenario import Scenario, UniformWorkload

SMALL = Scenario(
    workload=UniformWorkload(
        requests=3, prompt_tokens=(16, 40), output_tokens=(20, 30), interval_ms=1.0
    )
)
NO_TIME = StepTimes(
    host_us=0, base_us=0, prefill_us_per_token=0, decode_us_per_request=0, zero_us_per_block=0
)


def test_outputs_of_one_instant_keep_their_order() -> None:
    """Steps that take no time emit many tokens at once; shuffled events must not shuffle them."""
    scenario = msgspec.structs.replace(
        SMALL, perturb=True, network_latency_us=0, engine=EngineOptions(step_times=NO_TIME)
    )
    outcome = run(scenario).outcome
    assert outcome.violations == []
    assert outcome.requests == {"total": 3, "length": 3, "unfinished": 0}
