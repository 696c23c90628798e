"""Every engine variant, colocated and disaggregated, generates what the model defines."""

from __future__ import annotations

import itertools

import pytest

from sim.model.presets import PRESETS
from sim.outcome import Outcome
from sim.probes import Probe
from sim.run import run
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    UniformWorkload,
    with_settings,
)
from sim.workload import Segment

SHARED = GeneratedWorkload(requests=6, length_scale=0.05, rate_rps=40, shared_prefix_share=0.6)
VARIANTS: list[dict[str, str]] = [
    {"executor": executor, "async_scheduling": scheduling}
    for executor, scheduling in itertools.product(
        ("single-process", "multi-process"), ("true", "false")
    )
]
OPTIONS: list[dict[str, str]] = [
    {"enable_prefix_caching": "false"},
    {"max_num_batched_tokens": "256"},
    # vLLM splits prompts at the blocks of recurrent states, unless it caches no prefixes.
    {"enable_chunked_prefill": "false", "enable_prefix_caching": "false"},
    {"tp_size": "2", "executor": "multi-process"},
    {"kv_load_failure_policy": "recompute"},
    {"perturb": "true"},
]


def check(scenario: Scenario, probe: Probe | None = None) -> Outcome:
    outcome = run(scenario, probe=probe).outcome
    assert outcome.violations == []
    assert outcome.requests["unfinished"] == 0
    assert outcome.requests["length"] == outcome.requests["total"]
    return outcome


def with_options(scenario: Scenario, settings: dict[str, str]) -> Scenario:
    return with_settings(scenario, settings)


@pytest.mark.parametrize("model", PRESETS)
@pytest.mark.parametrize("settings", [*VARIANTS, *OPTIONS], ids=str)
def test_disaggregated_runs_are_clean(model: str, settings: dict[str, str]) -> None:
    """Outputs equal the reference, nothing wrong is read, everything is released."""
    check(with_options(Scenario(model=model, workload=SHARED), settings))


@pytest.mark.parametrize("model", PRESETS)
@pytest.mark.parametrize("settings", [{}, {"async_scheduling": "false"}], ids=str)
def test_a_colocated_engine_generates_the_reference_output(
    model: str, settings: dict[str, str]
) -> None:
    """What the same-output oracle compares with is what a real colocated engine generates."""
    scenario = Scenario(model=model, workload=SHARED, topology=Topology(colocated=True))
    check(with_options(scenario, settings))


class Preemptions(Probe):
    """Counts requests that lost their blocks and got new ones on the same engine."""

    def __init__(self) -> None:
        self.count = 0
        self._freed: set[tuple[str, str]] = set()

    def blocks_freed(self, node: str, request_id: str) -> None:
        self._freed.add((node, request_id))

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        if (node, request_id) in self._freed:
            self._freed.remove((node, request_id))
            self.count += 1


@pytest.mark.parametrize("colocated", [True, False])
def test_preemption_and_eviction_change_no_output(colocated: bool) -> None:
    """A pool for two requests at a time: decodes are preempted and recomputed, prefixes evicted."""
    workload = UniformWorkload(
        requests=6, prompt_tokens=(200, 300), output_tokens=(60, 80), interval_ms=5.0
    )
    scenario = Scenario(workload=workload, topology=Topology(colocated=colocated))
    preemptions = Preemptions()
    check(with_options(scenario, {"num_blocks": "52"}), preemptions)
    assert preemptions.count > 0


def test_two_producers_and_two_consumers() -> None:
    """Any producer hands over to any consumer."""
    check(Scenario(workload=SHARED, topology=Topology(producers=2, consumers=2)))


def test_real_geometry() -> None:
    """The model's true dimensions, for a short run."""
    workload = UniformWorkload(
        requests=2, prompt_tokens=(40, 60), output_tokens=(3, 3), interval_ms=50.0
    )
    scenario = Scenario(workload=workload, geometry="real")
    check(with_options(scenario, {"num_blocks": "40"}))


def test_prompts_of_one_token_and_of_whole_blocks() -> None:
    """Lengths around a block boundary, down to a single token."""
    lengths = (1, 2, 15, 16, 17, 31, 32, 33)
    requests = tuple(
        InlineRequest(f"req-{n}", arrival_s=0.05 * n, prompt=(Segment(n, length),), max_tokens=3)
        for n, length in enumerate(lengths)
    )
    check(Scenario(workload=InlineWorkload(requests=requests)))
