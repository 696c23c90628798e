"""What a roofline computes is how long passes take in a run."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from faults.running import run
from sim.engine.options import EngineOptions, pass_times_of
from sim.engine.roofline import Accelerator, named_accelerator
from sim.engine.work import Span
from sim.model.presets import get_preset
from sim.probes import Probe, StepTimes
from sim.scenario import Scenario
from sim.scenario.workloads import UniformWorkload

PROMPT = 1_000


class Steps(Probe):
    """The longest step of each engine, which is that with the pass."""

    def __init__(self) -> None:
        self.longest_ns: dict[str, int] = {}
        self.with_a_pass: Counter[str] = Counter()

    def step_done(self, step: StepTimes) -> None:
        self.longest_ns[step.node] = max(step.duration_ns, self.longest_ns.get(step.node, 0))
        self.with_a_pass[step.node] += step.model_executed


def computed_ns(accelerator: Accelerator, span: Span) -> int:
    options = EngineOptions(accelerator=accelerator)
    return pass_times_of(options, get_preset("llama")).forward_ns([span])


def steps_on(accelerator: Accelerator) -> Steps:
    """Of one request whose answer has two tokens; a step waits for its pass."""
    steps = Steps()
    options = EngineOptions(accelerator=accelerator, async_scheduling=False)
    workload = UniformWorkload(1, (PROMPT, PROMPT), (2, 2))
    scenario = Scenario(workload=workload, engine=options, quiet_phase_s=0)
    assert run(scenario, probe=steps).result.outcome.passed
    return steps


def simulated_ns(accelerator: Accelerator, node: str) -> int:
    return steps_on(accelerator).longest_ns[node]


@pytest.mark.parametrize(
    ("node", "span", "rate"),
    [
        pytest.param("p0", (0, PROMPT), "flops_per_ns", id="prefill"),
        pytest.param("d0", (PROMPT, PROMPT + 1), "memory_bytes_per_ns", id="decode"),
    ],
)
def test_a_step_is_longer_by_what_its_pass_is_longer(node: str, span: Span, rate: str) -> None:
    """On an accelerator with a tenth of the rate that limits the pass."""
    quick = named_accelerator("mi300x")
    slow = msgspec.structs.replace(quick, **{rate: getattr(quick, rate) / 10})
    slower_ns = computed_ns(slow, span) - computed_ns(quick, span)
    assert slower_ns > 1_000_000
    found_ns = simulated_ns(slow, node) - simulated_ns(quick, node)
    assert found_ns == pytest.approx(slower_ns, rel=0.001)


def test_steps_with_a_pass_are_told_from_empty_ones() -> None:
    """The prompt takes one on the producer, and each token one on the consumer."""
    assert steps_on(named_accelerator("mi300x")).with_a_pass == {"p0": 1, "d0": 2}
