"""What campaigns found to be wrong here, as small as it could be made."""

from __future__ import annotations

import msgspec
import pytest

from faults.running import run
from faults.schedule import parse
from sim.scenario import Scenario, UniformWorkload, with_settings
from sim.scenario.workloads import InlineRequest, InlineWorkload

APART = UniformWorkload(
    requests=4, prompt_tokens=(40, 40), output_tokens=(2, 2), interval_ms=100, repeats=0.0
)


@pytest.mark.parametrize(("node", "failed"), [("p0", ["req-1", "req-2", "req-3"]), ("d0", [])])
def test_memory_that_was_invalid_is_valid_in_the_quiet_phase(node: str, failed: list[str]) -> None:
    """A producer cannot know that its memory is refused, so whatever reads from it fails until that
    is over. A consumer registers its memory again and reads once more."""
    scenario = with_settings(
        Scenario(model="llama", workload=APART, quiet_phase_s=5.0), {"connector": "hybrid"}
    )
    fault = msgspec.to_builtins(parse(f"region-invalid:node={node},phase=read_posted,nth=2"))
    result = run(msgspec.structs.replace(scenario, faults=(fault,))).result
    ended = [r.fields for r in result.log.records if r.kind == "request-ended"]
    assert [f["request"] for f in ended if f["outcome"] == "error"] == failed
    assert (ended[-1]["request"], ended[-1]["outcome"]) == ("epilogue", "length")
    assert result.outcome.violations == []


@pytest.mark.parametrize(
    ("fault", "happened"),
    [
        # The driver tells the library, which the connector asks before it posts.
        ("queue-pair-error:event=QP_FATAL,at_s=0.25", "queue-pair-error"),
        # Nobody is told, so the next reads fail.
        ("queue-pair-error:at_s=0.25", "queue-pair-error"),
        ("silent-queue-pair:phase=read_posted,nth=2", "queue-pair-silent"),
    ],
)
def test_queue_pairs_that_fail_cost_no_request(fault: str, happened: str) -> None:
    """Whether the library is told or the next reads fail or never end."""
    settings = {"connector": "hybrid", "extra_config": "{transfer_timeout: 4}"}
    scenario = with_settings(Scenario(model="llama", workload=APART, quiet_phase_s=5.0), settings)
    faults = (msgspec.to_builtins(parse(fault)),)
    result = run(msgspec.structs.replace(scenario, faults=faults)).result
    assert happened in [record.kind for record in result.log.records]
    assert result.outcome.requests["length"] == 4
    assert result.outcome.violations == []


def test_a_request_that_loses_its_read_with_the_queue_pair_is_not_innocent() -> None:
    """What the library gave up because of an event is a failed transfer, as one that it refused."""
    failed = "completion-error:phase=read_posted,nth=1"
    texts = (failed, "queue-pair-error:event=QP_FATAL,phase=read_done,nth=2")
    faults = tuple(msgspec.to_builtins(parse(text)) for text in texts)
    settings = {"topology.consumers": "2", "async_scheduling": "false"}
    scenario = with_settings(Scenario(model="llama", workload=APART), settings)
    outcome = run(msgspec.structs.replace(scenario, faults=faults)).result.outcome
    assert outcome.requests["error"] > 0
    assert [v for v in outcome.violations if v.oracle == "blast-radius"] == []


def test_another_requests_parameters_serve_a_request_of_the_same_prompt() -> None:
    """Nobody can tell and nobody needs to: without a prefix cache its blocks are others, but the
    bytes are the same."""
    twins = InlineWorkload(
        tuple(InlineRequest(name, ((1, 150),), max_tokens=3) for name in ("one", "other"))
    )
    settings = {"connector": "hybrid", "topology.consumers": "2", "enable_prefix_caching": "false"}
    scenario = with_settings(Scenario(model="llama", workload=twins, quiet_phase_s=70.0), settings)
    faults = (msgspec.to_builtins(parse("mixed-up-params")),)
    result = run(msgspec.structs.replace(scenario, faults=faults)).result
    (hit,) = [r.fields["requests"] for r in result.log.records if r.kind == "fault-hit"]
    assert list(hit) == ["other"]
    assert result.outcome.requests["length"] == 2
    assert result.outcome.violations == []


@pytest.mark.requirement("R16", "S6")
@pytest.mark.parametrize("at_s", [29.3, 29.9])
def test_an_engine_that_stood_still_at_the_end_of_its_wait_lives_on(at_s: float) -> None:
    """The loader has a turn before the loads are taken for lost."""
    settings = {"connector": "hybrid", "extra_config": "{load_mode: sync}"}
    scenario = with_settings(Scenario(model="llama", workload=APART, quiet_phase_s=5.0), settings)
    texts = ("silent-queue-pair:count=100", f"pause:node=d0,at_s={at_s},for_s=20")
    faults = tuple(msgspec.to_builtins(parse(text)) for text in texts)
    result = run(msgspec.structs.replace(scenario, faults=faults)).result
    assert [r.kind for r in result.log.records if r.kind == "engine-died"] == []


@pytest.mark.requirement("R16", "S6")
@pytest.mark.parametrize("perturb", ["false", "true"])
def test_an_engine_that_stood_still_in_a_synchronous_load_lives_on(perturb: str) -> None:
    """Longer than its loads may take, and whoever of its threads comes first afterwards."""
    settings = {"connector": "hybrid", "extra_config": "{load_mode: sync}", "perturb": perturb}
    scenario = with_settings(Scenario(model="llama", workload=APART, quiet_phase_s=5.0), settings)
    faults = (msgspec.to_builtins(parse("pause:node=d0,phase=read_done,for_s=100")),)
    result = run(msgspec.structs.replace(scenario, faults=faults)).result
    assert [r.kind for r in result.log.records if r.kind == "engine-died"] == []
    assert result.outcome.violations == []


def test_a_verified_load_that_is_read_again_waits_for_what_was_told_too_early() -> None:
    """What its first reads brought, before their queue pair failed, had the right digests when the
    library called the second ones done, whose last bytes came when the blocks were free."""
    one = InlineWorkload((InlineRequest("one", ((3, 1), (4, 1)), max_tokens=1),))
    settings = {
        "connector": "hybrid",
        "extra_config": "{verify_reads: all}",
        "tp_size": "2",
        "executor": "multi-process",
        "async_scheduling": "false",
        "kv_load_failure_policy": "recompute",
    }
    scenario = with_settings(Scenario(model="llama", workload=one, quiet_phase_s=1.0), settings)
    texts = (
        "queue-pair-error:event=QP_ACCESS_ERR,node=p0,phase=read_in_flight",
        "early-completion:by_ms=20,during=read_in_flight,for_s=0.000977",
    )
    faults = tuple(msgspec.to_builtins(parse(text)) for text in texts)
    result = run(msgspec.structs.replace(scenario, faults=faults)).result
    assert "queue-pair-error" in [record.kind for record in result.log.records]
    assert result.outcome.violations == []


@pytest.mark.requirement("S8")
def test_a_queue_pair_that_failed_without_a_word_costs_a_verified_load_time_only() -> None:
    """It is read once more, and the request is answered some two seconds later than else."""
    settings = {"connector": "hybrid", "extra_config": "{verify_reads: all}"}
    scenario = with_settings(Scenario(model="llama", workload=APART, quiet_phase_s=70.0), settings)
    faults = (msgspec.to_builtins(parse("queue-pair-error:event=none,phase=read_done")),)
    result = run(msgspec.structs.replace(scenario, faults=faults)).result
    assert "queue-pair-error" in [record.kind for record in result.log.records]
    assert result.outcome.violations == []
    assert set(result.outcome.requests) == {"total", "length", "unfinished"}
    assert result.outcome.requests["unfinished"] == 0


@pytest.mark.requirement("R14", "R19")
def test_a_synchronous_load_waits_for_the_passes_before_it() -> None:
    """With asynchronous scheduling they may still run on the device, and the drafter of a request
    that has ended writes to the blocks that its successor has been given."""
    several = UniformWorkload(
        requests=8, prompt_tokens=(1, 1300), output_tokens=(2, 16), interval_ms=20
    )
    settings = {
        "connector": "hybrid",
        "extra_config": "{load_mode: sync}",
        "kv_load_failure_policy": "fail",
        "enable_prefix_caching": "false",
        "speculation": "{method: mtp, num_speculative_tokens: 2, acceptance_per_mille: 700}",
    }
    scenario = Scenario(seed=11200, model="deepseek-mla", workload=several, quiet_phase_s=2.0)
    result = run(with_settings(scenario, settings)).result
    assert result.outcome.violations == []
    assert result.outcome.requests["length"] == 8
