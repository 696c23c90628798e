"""Long runs: whole traces, and many seeds over every engine variant, none of them disturbed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from sim.kernel import Seed
from sim.outcome import Outcome
from sim.run import run
from sim.scenario import GeneratedWorkload, Scenario, Topology, TraceWorkload, with_settings

pytestmark = pytest.mark.soak

TRACES = Path(os.environ.get("FAULTLAB_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
MOONCAKE = "mooncake_fast25_conversation_trace.jsonl"
AZURE = "AzureLLMInferenceTrace_code.csv"


def assert_clean(outcome: Outcome) -> None:
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]


@pytest.mark.parametrize("model", ["llama", "deepseek-mla"])
@pytest.mark.parametrize(("trace", "requests"), [(MOONCAKE, 2_000), (AZURE, 8_000)])
def test_a_trace_at_its_own_lengths(model: str, trace: str, requests: int) -> None:
    """Prompts of up to 126,000 tokens, at the trace's own pace."""
    path = TRACES / trace
    if not path.exists():
        pytest.skip(f"no trace at {path}; set FAULTLAB_TRACES to the directory that has it")
    workload = TraceWorkload(path=str(path), requests=requests)
    assert_clean(run(Scenario(model=model, workload=workload)).outcome)


def variant(seed: int) -> Scenario:
    """A scenario drawn from the seed: model, topology, engine variant, pressure, lengths."""
    rng = Seed(seed).stream("soak")
    executor = rng.choice(["single-process", "multi-process"])
    tp_size = rng.choice([1, 2]) if executor == "multi-process" else 1
    settings = {
        "executor": executor,
        "tp_size": str(tp_size),
        "async_scheduling": rng.choice(["true", "false"]),
        "enable_prefix_caching": rng.choice(["true", "true", "false"]),
        "max_num_batched_tokens": rng.choice(["256", "1024", "8192"]),
        "kv_load_failure_policy": rng.choice(["fail", "recompute"]),
    }
    workload = GeneratedWorkload(
        requests=rng.randrange(2, 13),
        length_scale=rng.choice([0.01, 0.03, 0.1]),
        max_prompt_tokens=3_000,
        max_output_tokens=40,
        rate_rps=rng.choice([5.0, 50.0, 500.0]),
        shared_prefix_share=rng.choice([0.0, 0.37, 0.7]),
    )
    scenario = Scenario(
        seed=seed,
        model=rng.choice(["llama", "deepseek-mla"]),
        topology=Topology(rng.choice([1, 1, 2]), rng.choice([1, 1, 2])),
        workload=workload,
        perturb=rng.random() < 0.75,
    )
    return with_settings(scenario, settings)


def test_a_thousand_seeds_are_clean_and_every_tenth_replays() -> None:
    """No variant fires an oracle without a fault, and the same seed gives the same history."""
    for seed in range(1_000):
        outcome = run(variant(seed)).outcome
        assert outcome.violations == [], f"seed {seed}: {outcome.violations[0]}"
        if seed % 10 == 0:
            assert run(variant(seed)).outcome.event_hash == outcome.event_hash, f"seed {seed}"


def test_incremental_and_full_checks_agree_on_many_seeds() -> None:
    """Comparing everything each time finds no more than comparing what changed."""
    for seed in range(100):
        scenario = variant(seed)
        full = run(msgspec.structs.replace(scenario, check="full")).outcome
        assert full.violations == [], f"seed {seed}"
        assert full.event_hash == run(scenario).outcome.event_hash, f"seed {seed}"
