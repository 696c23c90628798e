"""Synchronous loads that fail: a campaign counts the end of the step as what has to be."""

from __future__ import annotations

from typing import Any

import pytest

from faults.campaign import worker
from faults.campaign.failed_step import without_failed_steps
from faults.campaign.result import SeedResult
from faults.campaign.swarm import SwarmOptions
from faults.schedule import with_faults
from sim.engine.connectors import CONNECTORS
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.scenario import Scenario, UniformWorkload, with_settings

SCENARIO = Scenario(
    connector="hybrid",
    extra_config={"load_mode": "sync"},
    workload=UniformWorkload(
        requests=3, prompt_tokens=(100, 200), output_tokens=(3, 3), interval_ms=20.0
    ),
    quiet_phase_s=70.0,
)
SWA = with_settings(SCENARIO, {"model": "gemma-swa"})


@pytest.mark.requirement("R16")
@pytest.mark.parametrize("executor", ["single-process", "multi-process"])
@pytest.mark.parametrize(("model", "status"), [("llama", "passed"), ("gemma-swa", "failed-closed")])
def test_a_failed_load_ends_the_step_only_where_vllm_leaves_no_other_way(
    model: str, status: str, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cache group: the request fails, the engine lives. Several: the engine ends, whichever of
    vLLM's executors carries the words of its end."""
    result = judged(monkeypatch, model=model, executor=executor)
    assert (result.status, result.failures) == (status, [])
    assert ("the synchronous load of" in result.detail) == (status == "failed-closed")


@pytest.mark.requirement("R16")
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("model", "status"), [("llama", "passed"), ("gemma-swa", "failed-closed")])
def test_all_ranks_end_a_step_for_which_one_failed_to_load(
    model: str, status: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: the others would wait for that rank in their forward pass, and vLLM for them, until
    its own limit of five minutes, which is far beyond that of a step."""
    lies = f"early-completion:skip={rank},by_ms=20"  # that of each rank is one work request
    verified = {"executor": "multi-process", "extra_config.verify_reads": "all"}
    result = judged(monkeypatch, lies, model=model, tp_size="2", **verified)
    assert (result.status, result.failures) == (status, [])
    assert result.virtual_s < 90


def judged(
    monkeypatch: pytest.MonkeyPatch, fault: str = "completion-error:count=100", **settings: str
) -> SeedResult:
    settings = {"kv_load_failure_policy": "fail", **settings}
    scenario = with_faults(with_settings(SCENARIO, settings), [fault])
    monkeypatch.setattr(worker, "scenario_of", lambda seed, options: scenario)
    return worker.run_job(worker.Job(0, SwarmOptions()))


def test_nothing_else_is_excused() -> None:
    """No other death, no other engine's request, no model of one group, and no wrong byte."""
    ended = died("d0", f"RuntimeError: '{CONNECTORS['hybrid'].step_failure} req-1 failed'")
    found = [
        violation("engine-died", node="d0"),
        violation("not-recovered", request="epilogue-0", outcome="engine-died"),
        violation("engine-died", node="d1"),
        violation("not-recovered", request="epilogue-0", outcome="error"),
        violation("wrong-bytes", node="d0"),
    ]
    assert without_failed_steps(found, [ended], SWA) == (found[2:], found[:2])
    other = died("d0", "TypeError: no")
    for records, scenario in (([other], SWA), ([ended], SCENARIO)):
        assert without_failed_steps(found, records, scenario) == (found, [])


def violation(
    kind: str, *, node: str | None = None, request: str | None = None, outcome: str = ""
) -> Violation:
    evidence = {"kind": kind, "outcome": outcome}
    return Violation("liveness", 1.5, node, request, "words", evidence)


def died(node: str, reason: str) -> Record:
    return record("engine-died", node=node, reason=reason)


def record(kind: str, **fields: Any) -> Record:
    return Record(0, "test", kind, fields)
