"""Several samples of one prompt (F31): one prefill, several decode legs told the same."""

from __future__ import annotations

from typing import Any

import pytest

from faults.running import FaultedRun, run
from faults.schedule import with_faults
from sim.scenario import Scenario, UniformWorkload, with_settings

SMALL = Scenario(
    workload=UniformWorkload(
        requests=3, prompt_tokens=(60, 200), output_tokens=(4, 8), interval_ms=20.0
    ),
    quiet_phase_s=70.0,
)
THREE = "several-samples:request=req-1,phase=prefill,samples=3"


def sampled(connector: str, *faults: str, **settings: str) -> FaultedRun:
    scenario = with_settings(SMALL, {"connector": connector, **settings})
    return run(with_faults(scenario, [THREE, *faults]))


def legs(result: FaultedRun, kind: str) -> list[dict[str, Any]]:
    records = [r.fields for r in result.result.log.records if r.kind == kind]
    return [fields for fields in records if fields["request"] == "req-1"]


@pytest.mark.parametrize("connector", ["reference", "hybrid", "moriio"])
def test_all_samples_are_decoded_from_one_prefill(connector: str) -> None:
    """On one consumer, from one transfer; the client has its answer when the last has ended."""
    result = sampled(connector)
    sent = [(leg["leg"], leg["node"], leg["transfer"]) for leg in legs(result, "leg-sent")]
    transfer = sent[1][2]
    assert sent[1:] == [(f"req-1-d{number}", "d0", transfer) for number in range(3)]
    ended = [leg["leg"] for leg in legs(result, "leg-finished")]
    assert sorted(ended) == ["req-1-d0", "req-1-d1", "req-1-d2", "req-1-p0"]
    assert result.result.outcome.requests == {"total": 3, "length": 3, "unfinished": 0}
    assert result.result.outcome.violations == []


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("model", ["gemma-swa", "kimi-linear"])
def test_every_group_of_a_hybrid_model_is_loaded_for_each_sample(model: str, mode: str) -> None:
    """Or computed, or shared; whatever it does, the bytes are right and nothing leaks."""
    result = sampled("hybrid", model=model, **{"extra_config.load_mode": mode})
    assert result.result.outcome.violations == []
    assert result.result.outcome.requests["length"] == 3


def test_the_answer_fails_with_the_first_sample_that_does() -> None:
    """And the other samples are given up, so that nothing is left of them."""
    crash = "crash:node=d0,phase=decode,nth=2,for_s=1"
    result = sampled("reference", crash)
    assert result.result.outcome.requests["engine-died"] >= 1
    assert result.result.outcome.requests["unfinished"] == 0
    assert result.result.outcome.violations == []


def test_after_the_hand_off_it_is_too_late() -> None:
    """The fault says so."""
    late = "several-samples:request=req-1,phase=decode"
    result = run(with_faults(SMALL, [late]))
    assert result.faults[0].missed == ["req-1 has been handed off, for one sample"]


@pytest.mark.parametrize("kind", ["several-samples", "early-hand-off"])
def test_it_is_too_late_for_an_answer_that_is_on_its_way(kind: str) -> None:
    """Both engines have given up the blocks, and the router has yet to hear of the end."""
    scenario = with_settings(SMALL, {"connector": "reference"})
    late = f"{kind}:request=req-1,event=blocks-freed,nth=2"
    result = run(with_faults(scenario, [late]))
    assert result.faults[0].missed
    assert result.result.outcome.requests["unfinished"] == 0
