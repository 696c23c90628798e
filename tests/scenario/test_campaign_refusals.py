"""Engines that are configured unlike each other: a campaign counts their refusal as one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from faults.campaign import worker
from faults.campaign.excuses import judge
from faults.campaign.result import SeedResult
from faults.campaign.swarm import SwarmOptions
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.kinds import KINDS
from faults.schedule import with_faults
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.scenario import Scenario, UniformWorkload, with_settings

SCENARIO = Scenario(
    connector="hybrid",
    workload=UniformWorkload(
        requests=3, prompt_tokens=(100, 200), output_tokens=(3, 3), interval_ms=20.0
    ),
    quiet_phase_s=3.0,
)


def judged(fault: str, monkeypatch: pytest.MonkeyPatch, **settings: str) -> SeedResult:
    """What a campaign's worker makes of one run."""
    settings = {"kv_load_failure_policy": "fail", **settings}
    scenario = with_faults(with_settings(SCENARIO, settings), [fault])
    monkeypatch.setattr(worker, "scenario_of", lambda seed, options: scenario)
    return worker.run_job(worker.Job(0, SwarmOptions()))


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("model", ["llama", pytest.param("gemma-swa", marks=pytest.mark.soak)])
def test_engines_that_disagree_refuse_each_other(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About anything that is drawn: none is served wrong bytes, and no rule is broken otherwise."""
    scenario = with_settings(SCENARIO, {"model": model})
    statuses = {}
    for variant in KINDS["disagreement"].variants(scenario):
        ((key, value),) = variant.items()
        text = msgspec.json.encode(value).decode()
        result = judged(f"disagreement:node=d0,{key}={text}", monkeypatch, model=model)
        statuses[f"{key}={text}"] = result.status, result.failures
    served = {name for name, (status, _) in statuses.items() if status == "passed"}
    assert served == {'extra_config={"load_mode":"sync"}'}
    assert {status for status, failures in statuses.values()} == {"passed", "refused"}
    assert not any(failures for _, failures in statuses.values())


@pytest.mark.requirement("R15")
def test_an_engine_of_larger_blocks_has_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets fewer, starts, and is refused by its peer."""
    fault = "disagreement:node=d0,geometry=real"
    assert judged(fault, monkeypatch, model="glm-flash").status == "refused"


def test_a_connector_that_serves_what_it_should_refuse_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refusals that a rule reports are excused, what else it reports is not."""
    fault = "disagreement:node=d0,dtype=float16"
    result = judged(fault, monkeypatch, connector="moriio")
    assert result.status == "failed"
    assert "fail-closed" in {failure.oracle for failure in result.failures}


def test_nothing_is_excused_between_engines_that_are_alike() -> None:
    """Nor when an engine dies, nor without a disagreement."""
    apart: list[Any] = [record("fault-hit", fault_kind="disagreement", node="d1")]
    sent = [record("leg-sent", request=f"epilogue-{n}", node=f"d{n}") for n in (0, 1)]
    for number, records, excused in ((1, apart + sent, True), (0, apart + sent, False)):
        assert bool(judge([not_recovered(number)], records, SCENARIO).refusals) == excused
    assert judge([not_recovered(1)], sent, SCENARIO).refusals == []
    assert judge([not_recovered(1, "engine-died")], apart + sent, SCENARIO).refusals == []


def not_recovered(number: int, outcome: str = "error") -> Violation:
    evidence = {"kind": "not-recovered", "outcome": outcome}
    return Violation("liveness", 1.5, None, f"epilogue-{number}", "words", evidence)


def record(kind: str, **fields: Any) -> Record:
    return Record(0, "test", kind, fields)


def test_a_disagreement_about_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With what one can disagree about."""
    assert dispatch.run(["run", "--fault", "disagreement:node=p0"]) == ExitCode.BAD_USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert "it says nothing to disagree about; give one or more of model, geometry," in said
