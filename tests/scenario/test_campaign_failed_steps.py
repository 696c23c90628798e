"""Synchronous loads that fail: a campaign counts the end of the step as what has to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.campaign import worker
from faults.campaign.excuses import Judged, judge
from faults.campaign.result import SeedResult
from faults.campaign.swarm import SwarmOptions
from faults.schedule import with_faults
from sim.engine.connectors import CONNECTORS
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.scenario import Scenario, UniformWorkload, with_settings

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("fault", ["completion-error:count=100", "wall-clock-jump"])
def test_a_connector_that_never_loads_has_failed(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its engine is started again when nothing is broken, and ends again."""
    source = (ROOT / "connector" / "loader.py").read_text()
    right = "Load(order, is_ready, now, now + self._transfer_timeout_s)"
    assert source.count(right) == 1
    broken = tmp_path / "connector" / "loader.py"
    broken.parent.mkdir()
    broken.write_text(source.replace(right, "Load(order, lambda: False, now, now + 0.1)"))
    result = judged(monkeypatch, fault, model="gemma-swa", overlay=str(tmp_path))
    assert {failure.oracle for failure in result.failures} == {"liveness"}


def test_nothing_else_is_excused() -> None:
    """No other death, nothing at the end, no model of one group, and no wrong byte."""
    ended, sibling = died("d0", FAILED.format("req-1-d0")), died("d1", "d0 died")
    late = died("d0", FAILED.format("req-1-d0, epilogue-d0"))
    deaths = [
        violation("engine-died", ended),
        violation("engine-died", sibling),
        violation("engine-died", late),
    ]
    rest = [
        violation("not-recovered", late, request="epilogue", outcome="engine-died"),
        violation("wrong-bytes", ended),
    ]
    records = [ended, sibling, late]
    expected = Judged([deaths[2], *rest], [], deaths[:2])
    assert judge([*deaths, *rest], records, SWA) == expected
    other = died("d0", "TypeError: no")
    for records, scenario in (([other, sibling], SWA), ([ended, sibling], SCENARIO)):
        assert judge(deaths, records, scenario) == Judged(deaths)


@pytest.mark.parametrize("apart", [True, False])
def test_engines_that_do_not_fit_may_end_at_the_end(apart: bool) -> None:
    """Because they refuse each other; and they take along whom else they serve, and whom they were
    to serve."""
    late = died("d0", FAILED.format("epilogue-d0"))
    hit = record("fault-hit", fault_kind="disagreement", node="d0" if apart else "d1")
    records = [
        hit,
        record("leg-sent", request="epilogue", node="d0"),
        record("leg-sent", request="epilogue-1", node="d0"),
        record("leg-sent", request="epilogue-1", node="p0"),
        record("leg-sent", request="epilogue-2", node="p1"),
        late,
    ]
    found = [
        violation("engine-died", late),
        violation("not-recovered", late, request="epilogue", outcome="engine-died"),
        violation("not-recovered", late, request="epilogue-1", outcome="engine-died"),
        violation("not-recovered", late, request="epilogue-2", outcome="engine-died"),
    ]
    expected = Judged(ended_steps=found) if apart else Judged(counting=found)
    assert judge(found, records, SWA) == expected


@pytest.mark.parametrize("late", [True, False])
def test_what_the_workload_left_may_end_an_engine_at_the_end(late: bool) -> None:
    """With all that it serves then. One that ended before is started again, and has to serve."""
    death, sent = (
        died("d0", FAILED.format("req-1-d0")),
        record("leg-sent", request="epilogue", node="d0"),
    )
    ended = violation("engine-died", death)
    lost = violation("not-recovered", death, request="epilogue", outcome="engine-died")
    judged = judge([ended, lost], [sent, death] if late else [death, sent], SWA)
    assert judged.ended_steps == ([ended, lost] if late else [ended])
    assert judged.counting == ([] if late else [lost])


FAILED = f"RuntimeError: '{CONNECTORS['hybrid'].step_failure} {{}} failed; and more'"


def violation(
    kind: str, death: Record, *, request: str | None = None, outcome: str = ""
) -> Violation:
    evidence = {"kind": kind, "outcome": outcome}
    node, reason = death.fields["node"], death.fields["reason"]
    return Violation("liveness", 1.5, node, request, f"{node} died: {reason}", evidence)


def died(node: str, reason: str) -> Record:
    return record("engine-died", node=node, reason=reason)


def record(kind: str, **fields: Any) -> Record:
    return Record(0, "test", kind, fields)
