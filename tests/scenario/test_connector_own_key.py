"""Somebody between the engines drops or renames what the connector adds to MoRIIO's messages."""

from __future__ import annotations

import pytest

from faults.running import run
from faults.schedule import with_faults
from sim.outcome import Outcome
from sim.scenario import Scenario, UniformWorkload, with_settings

SCENARIO = Scenario(
    connector="hybrid",
    workload=UniformWorkload(
        requests=4, prompt_tokens=(100, 200), output_tokens=(3, 3), interval_ms=50.0
    ),
    quiet_phase_s=5.0,
)
BOTH_WAYS = pytest.mark.parametrize("how", ["stripped", "renamed"])


def outcome_of(fault: str, **settings: str) -> Outcome:
    scenario = with_settings(SCENARIO, {"kv_load_failure_policy": "fail", **settings})
    return run(with_faults(scenario, [fault])).result.outcome


@pytest.mark.requirement("S3", "S7")
@BOTH_WAYS
def test_parameters_without_the_key_fail_their_request_alone(how: str) -> None:
    """The producer can be asked about what it holds, so nothing is read without a hold to ask
    about; the client sees an error, or gets a recomputed answer."""
    fault = f"key-stripped:request=req-1,how={how}"
    failed = outcome_of(fault)
    assert failed.violations == []
    assert (failed.requests["error"], failed.requests["length"]) == (1, 3)
    recomputed = outcome_of(fault, kv_load_failure_policy="recompute")
    assert recomputed.violations == []
    assert recomputed.requests["length"] == 4


@pytest.mark.requirement("S3", "S7")
@BOTH_WAYS
def test_messages_without_the_key_break_no_rule(how: str) -> None:
    """Of a handshake, after which the peer cannot be asked about the hold that the offer names; of
    every one; and of releases, which then look like MoRIIO's own."""
    first = outcome_of(f"message-key-stripped:how={how}")
    assert first.violations == []
    assert (first.requests["error"], first.requests["length"]) == (1, 3)
    every = outcome_of(f"message-key-stripped:count=null,how={how}")
    assert every.violations == []
    assert every.requests["error"] == 4
    late = outcome_of(f"message-key-stripped:during=release,count=null,how={how}")
    assert late.violations == []
    assert late.requests["length"] == 4


@pytest.mark.requirement("R10")
def test_another_requests_parameters_fail_the_request_that_got_them() -> None:
    """Though the producer holds those blocks, and they are as many; the other one has its answer,
    though both are under way at once."""
    together = {
        "workload.interval_ms": "0",
        "workload.prompt_tokens": "[150, 150]",
        "quiet_phase_s": "70",  # nobody can release the blocks whose parameters are lost
    }
    outcome = outcome_of("mixed-up-params", **together)
    assert outcome.violations == []
    assert (outcome.requests["error"], outcome.requests["length"]) == (1, 3)
