"""vLLM's ExampleConnector: a second connector from the tree, over files that all nodes share.

Where it goes wrong by itself is in test_findings.py.
"""

from __future__ import annotations

import pytest

from sim.run import TestBed, run
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    with_settings,
)
from sim.workload import Segment

REQUESTS = (
    InlineRequest("a", (Segment(1, 300),), max_tokens=8),
    InlineRequest("b", (Segment(2, 700),), max_tokens=8, arrival_s=0.1),
    InlineRequest("c", (Segment(1, 300),), max_tokens=8, arrival_s=0.5),
)
EXAMPLE = Scenario(connector="example", workload=InlineWorkload(REQUESTS), quiet_phase_s=5.0)


@pytest.mark.parametrize("model", ["llama", "deepseek-mla", "gemma-swa"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"executor": "multi-process"}, {"async_scheduling": "false"}, {"model_runner": "v1"}],
    ids=["plain", "multi-process", "synchronous", "v1"],
)
def test_what_a_producer_stored_is_loaded_by_a_consumer(
    model: str, settings: dict[str, str]
) -> None:
    """The whole blocks of the prompt, through files, with the right bytes."""
    beds: list[TestBed] = []
    scenario = with_settings(EXAMPLE, {"model": model, **settings})
    outcome = run(scenario, prepare=beds.append).outcome
    assert outcome.verdict == "pass", outcome.violations
    loaded = {name: r.remote_cached_tokens for name, r in beds[0].router.results.items()}
    assert loaded["a"] >= 300 - 64
    assert loaded["b"] >= 700 - 64


def test_the_next_run_finds_no_files() -> None:
    """The disk is the run's: equal runs are equal."""
    assert run(EXAMPLE).outcome.event_hash == run(EXAMPLE).outcome.event_hash


def test_an_error_of_torch_ends_the_engine_and_not_the_test_bed() -> None:
    """Torch looks through the native stack when it makes one, and threads here share a single one.
    What it stumbled on there ended the process, with these requests in every run."""
    scenario = Scenario(connector="example", workload=GeneratedWorkload(requests=4))
    (violation, *_) = run(scenario).outcome.violations
    assert (violation.oracle, violation.node) == ("liveness", "d0")
    assert "shape mismatch: value tensor of shape [7824, 8, 4]" in violation.detail
