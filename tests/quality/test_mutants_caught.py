"""Deliberate defects of the connector are caught, and only those."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from faults.campaign.pool import Pool
from faults.campaign.result import Failure, SeedResult
from faults.campaign.worker import Job
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.mutants import hunt as hunting
from faults.mutants.catalog import MUTANTS
from faults.mutants.hunt import hunt
from faults.mutants.mutant import Mutant
from faults.running import run
from faults.schedule import encode, parse
from sim.scenario import loads

QUIET_S = 2.0
SHORT = {"workload.requests": "2", "workload.prompt_tokens": "[60, 120]"}
HARMLESS = msgspec.structs.replace(
    MUTANTS["layer-offset"], name="harmless", wrong="local_base + offset + 0", settings=SHORT
)


@pytest.mark.parametrize("name", ["last-block-not-read", "half-of-a-state", "load-without-tokens"])
def test_a_mutant_is_caught(name: str) -> None:
    """Of the core, of the memory, of the scheduler half; by what each of them must break."""
    mutant = MUTANTS[name]
    mutant = msgspec.structs.replace(mutant, settings={**SHORT, **mutant.settings})
    found = hunt(mutant, range(2), QUIET_S)
    oracles = {group.partition("/")[0] for group in found.groups}
    assert found.seed is not None, found
    assert oracles & {"wrong-bytes", "liveness"}, found


def test_an_error_that_a_net_catches_is_a_failure_of_its_own() -> None:
    """Though it breaks nothing else: the net is there so that it does not."""
    mutant = MUTANTS["error-survived"]
    found = hunt(msgspec.structs.replace(mutant, settings=SHORT), range(1), QUIET_S)
    assert found.groups == ["unexpected-exception/connector.loader.Loader._run"]
    assert "'Renewer' object has no attribute 'connections'" in found.detail


def test_undefined_behaviour_of_the_library_is_a_failure_of_its_caller(tmp_path: Path) -> None:
    """It says nothing about the testbed: the process ends, its engine with it, and both say why."""
    MUTANTS["stale-session"].write(tmp_path)
    error = parse("completion-error:phase=read_posted")
    scenario = loads(
        f"{{schema_version: 1, model: llama, connector: hybrid, overlay: {tmp_path}, "
        "quiet_phase_s: 1, workload: {kind: inline, requests: "
        "[{request_id: a, prompt: [[1, 100]], max_tokens: 4}]}}"
    )
    faulted = msgspec.structs.replace(scenario, faults=encode([error]))
    violations = run(faulted).result.outcome.violations
    (died,) = [v for v in violations if v.oracle == "liveness" and v.node == "d0"]
    assert died.evidence["kind"] == "engine-died"
    assert re.search(r"d0/core ended: .* after remove_backend, at connector\.", died.detail)


def test_a_change_that_breaks_nothing_is_not_caught() -> None:
    """The same seeds with an overlay that does what the shipped connector does."""
    found = hunt(HARMLESS, range(2), QUIET_S)
    assert (found.runs, found.seed, found.groups) == (2, None, [])


def test_what_the_shipped_connector_does_is_not_the_mutants() -> None:
    """A group counts only if the same seed without the defect does not fall into it; neither does
    a seed that says nothing about the shipped connector."""
    own, old = (Failure(group, group, "words") for group in ("own", "old"))
    mutated = SeedResult(seed=0, status="failed", failures=[old, own])
    shipped = {
        0: SeedResult(seed=0, status="failed", failures=[own, old]),
        1: SeedResult(seed=1, status="error"),
        2: SeedResult(seed=2, status="failed", failures=[old]),
    }

    def run_job(job: Job) -> SeedResult:
        is_mutated = "overlay" in job.options.settings
        chosen = mutated if is_mutated else shipped[job.seed]
        return msgspec.structs.replace(chosen, seed=job.seed)

    found = hunt(MUTANTS["layer-offset"], range(5), run=run_job)
    assert (found.runs, found.seed, found.groups) == (3, 2, ["own"])


def test_a_seed_that_hangs_costs_that_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some defects never end a run; the next seed has a new process."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, sys, time\n"
        "for line in sys.stdin:\n"
        "    job = json.loads(line)\n"
        "    if job['seed'] == 0: time.sleep(600)\n"
        "    bad = 'overlay' in job['options']['settings']\n"
        "    failure = {'group': 'a', 'oracle': 'a', 'detail': 'a'}\n"
        "    answer = {'seed': job['seed'], 'status': 'failed', 'failures': [failure] * bad}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    command = [sys.executable, str(script)]
    monkeypatch.setattr(hunting, "Pool", partial(Pool, command=command))
    mutants = [MUTANTS["layer-offset"], MUTANTS["no-fence"]]
    found = list(hunting.hunt_all(mutants, range(3), 2, seed_limit_s=1.0))
    assert {(hunt.name, hunt.seed) for hunt in found} == {("layer-offset", 1), ("no-fence", 1)}
    assert all("did not finish it within 1 s" in hunt.others[0] for hunt in found)


def test_a_mutant_that_is_not_caught_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, its name, and what seeds said nothing."""
    missed = hunting.Hunt(
        name=HARMLESS.name, breaks="", place="", runs=2, others=["seed 1: refused: no port"]
    )

    def hunt_all(mutants: list[Mutant], *_: object) -> list[hunting.Hunt]:
        return [msgspec.structs.replace(missed, name=mutant.name) for mutant in mutants]

    monkeypatch.setattr("faults.cli.mutants.hunt_all", hunt_all)
    assert dispatch.run(["mutants", "no-fence", "--json"]) == ExitCode.VIOLATION
    document = json.loads(capsys.readouterr().out)
    assert (document["caught"], document["not_caught"]) == (0, ["no-fence"])
    assert document["schema_version"] == 1
    assert dispatch.run(["mutants", "no-fence"]) == ExitCode.VIOLATION
    text = capsys.readouterr().out
    assert "not in 2" in text
    assert "refused: no port" in text
