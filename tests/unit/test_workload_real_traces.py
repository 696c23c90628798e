"""The readers on published traces, and the generator beside the trace it imitates.

The traces are not part of the project. They are looked for in the directory that the environment
variable FAULTLAB_TRACES names, or in ../shared/traces beside the repository.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from sim.workload import RequestSpec, describe, generate, load_trace, scale

REPOSITORY = Path(__file__).resolve().parents[2]
TRACES = Path(os.environ.get("FAULTLAB_TRACES", REPOSITORY.parent / "shared" / "traces"))


def trace_file(name: str) -> Path:
    """The trace's path; skips the test, with the reason, where there is none."""
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"{path} does not exist; set FAULTLAB_TRACES to a directory with {name}")
    return path


@pytest.fixture(scope="module")
def conversation() -> list[RequestSpec]:
    """The whole Mooncake conversation trace."""
    return load_trace(trace_file("mooncake_fast25_conversation_trace.jsonl"))


def test_the_conversation_trace_has_its_published_figures(conversation: list[RequestSpec]) -> None:
    """Nothing is lost or cut on the way: the same figures that the generator aims at."""
    summary = describe(conversation)
    assert summary["requests"] == 12_031
    assert summary["prompt_tokens_p50"] == 6_909
    assert summary["prompt_tokens_p99"] == pytest.approx(85_399, rel=0.001)
    assert summary["output_tokens_p50"] == 350
    assert summary["prefix_share"] == pytest.approx(0.37, abs=0.005)


def test_the_generator_is_as_bursty_as_the_trace(conversation: list[RequestSpec]) -> None:
    """Variance over mean of arrivals in one-second windows; evenly random arrivals have 1."""
    imitated = dispersion(generate(len(conversation), random.Random(0)))
    assert imitated == pytest.approx(dispersion(conversation), rel=0.2)


def test_the_generator_shares_and_measures_as_the_trace_does(
    conversation: list[RequestSpec],
) -> None:
    """Lengths within 10 %, the shared share within four points, over 2,000 requests."""
    imitated, real = describe(generate(2000, random.Random(0))), describe(conversation)
    assert imitated["prompt_tokens_p50"] == pytest.approx(real["prompt_tokens_p50"], rel=0.1)
    assert imitated["prompt_tokens_p99"] == pytest.approx(real["prompt_tokens_p99"], rel=0.1)
    assert imitated["output_tokens_p50"] == pytest.approx(real["output_tokens_p50"], rel=0.1)
    assert imitated["prefix_share"] == pytest.approx(real["prefix_share"], abs=0.04)


def test_scaling_keeps_the_shared_share_of_the_trace(conversation: list[RequestSpec]) -> None:
    """A tenth of every block is shared as the blocks were."""
    scaled = scale(conversation, length_scale=0.1)
    assert describe(scaled)["prefix_share"] == pytest.approx(0.37, abs=0.01)


def test_the_azure_code_trace_is_read_whole() -> None:
    """Its size, its longest prompt and its duration; nothing is shared."""
    specs = load_trace(trace_file("AzureLLMInferenceTrace_code.csv"))
    summary = describe(specs)
    assert summary["requests"] == 8_819
    assert max(spec.prompt_tokens for spec in specs) == 7_437
    assert summary["duration_s"] == pytest.approx(3_435.948056)
    assert summary["prefix_share"] == 0


def dispersion(specs: list[RequestSpec]) -> float:
    """Variance over mean of the number of arrivals in each second."""
    counts = Counter(spec.arrival_ns // 1_000_000_000 for spec in specs)
    seconds = [counts[second] for second in range(max(counts) + 1)]
    mean = sum(seconds) / len(seconds)
    return sum((count - mean) ** 2 for count in seconds) / len(seconds) / mean
