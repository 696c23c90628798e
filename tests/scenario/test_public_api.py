"""The library as its page shows it."""

from __future__ import annotations

import random
import re
import runpy
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process_worker import InProcessWorker

import faults
from faults import (
    CampaignRun,
    Outcome,
    RuleBroken,
    Run,
    Scenario,
    SeedResult,
    UniformWorkload,
    Violation,
    api,
    public,
)
from faults.campaign.result import Failure, summarize
from faults.campaign.vllm_defects import VLLM_DEFECTS
from sim.scenario import workload_of
from sim.workload import describe

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "library.py"


def test_the_example_prints_what_its_comments_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a failing run leaves an artifact where the caller is. Here the runs are in this process;
    the tests of the pytest plugin have them in one of their own, as usual."""
    monkeypatch.setattr(api, "_WORKER", InProcessWorker())
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE))
    said = re.findall(r"# prints: (.*)", EXAMPLE.read_text())
    assert capsys.readouterr().out.splitlines() == said
    assert len(said) >= 5
    (directory,) = (tmp_path / "faultlab-runs").iterdir()
    assert (directory / "artifact.json").is_file()


def test_all_that_is_public_is_listed_before_it_is_first_asked_for() -> None:
    """Whoever completes names in a prompt asks ``dir``."""
    assert {"run", "load", "campaign", *public.__all__} <= set(dir(faults))
    assert all(hasattr(faults, name) for name in dir(faults))


def test_the_page_shows_the_example_and_names_all_that_is_public() -> None:
    """Word for word, so that what is read is what is tested."""
    page = (ROOT / "docs" / "library.md").read_text()
    assert f"```python\n{EXAMPLE.read_text()}```" in page
    names = set(re.findall(r"\w+", page))
    unsaid = {"FaultReport", "Outcome", "SeedResult", "Violation", "Workload"}  # of others
    assert set(public.__all__) - names == unsaid


def test_every_public_name_is_there_and_documented() -> None:
    """Under its name in ``faults``, with a docstring of its own."""
    for name in (*public.__all__, "run", "load", "campaign"):
        found = getattr(faults, name)
        assert name == "Workload" or found.__doc__
    with pytest.raises(AttributeError, match="no attribute 'scenario'"):
        faults.scenario  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_library_loads_nothing_heavy() -> None:
    """Nor does asking for a type: a test suite that is only collected should not wait."""
    heavy = "import sys; from faults import Scenario, run; sys.exit('vllm' in sys.modules)"
    env = {"PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", heavy], env=env, check=False).returncode == 0


def test_campaign_names_the_function_although_there_is_a_package() -> None:
    """Whatever was imported of the package before; and the package stays importable."""
    assert callable(faults.campaign)
    assert Failure.__module__ == "faults.campaign.result"


def test_bad_names_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the words of the command line."""
    with pytest.raises(faults.UsageError, match="did you mean 'llama'"):
        faults.campaign(1, models=["lama"])
    with pytest.raises(faults.UsageError, match="late-hand-off"):
        faults.run("late-handoff")
    workload = UniformWorkload(requests=1, prompt_tokens=(2, 2), output_tokens=(1, 1))
    with pytest.raises(faults.UsageError, match=r"3: is of type int; expected a Scenario"):
        faults.run(3)  # type: ignore[arg-type]
    monkeypatch.setattr(api, "_WORKER", InProcessWorker())
    with pytest.raises(faults.UsageError, match="is a file"):
        faults.run(Scenario(workload=workload), out=EXAMPLE)


@pytest.mark.parametrize(
    ("status", "known", "passes"),
    [
        ("passed", [], True),
        ("failed", [], False),
        ("failed", ["leak/producer"], True),
        ("error", [], False),
    ],
)
def test_a_campaign_passes_if_no_failure_is_new(
    status: str, known: list[str], passes: bool
) -> None:
    """A seed in error has proved nothing; a known group is excused, and others are told."""
    failures = [Failure("leak/producer", "leak", "one block is held")] if status == "failed" else []
    results = [SeedResult(seed=4, status=status, failures=failures, detail="died")]
    summary = summarize(results, known, seeds=range(4, 5), wall_s=1.0, interrupted=False)
    ran = CampaignRun(results=results, summary=summary)
    assert ran.passed is passes
    groups = {"leak/producer": 1} if failures else {}
    assert f"groups={groups}, new_groups=" in repr(ran)
    assert len(repr(ran)) < 200
    if passes:
        ran.require_pass()
        return
    with pytest.raises(RuleBroken, match=r"one block is held|error in seed 4: died"):
        ran.require_pass()


class TwoRuns:
    """Workers whose first run notices the canary, and whose second falls into ``groups``."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._fall_into = [["wrong-bytes/consumer"], [*groups]]

    def __enter__(self) -> TwoRuns:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def run(self, seeds: Iterator[int], make_job: Any) -> Iterator[SeedResult]:
        failures = [Failure(group, "wrong-bytes", "a row") for group in self._fall_into.pop(0)]
        for seed in seeds:
            yield SeedResult(seed=seed, status="failed", failures=failures)


@pytest.mark.parametrize(
    ("groups", "new"),
    [([*VLLM_DEFECTS], []), ([*VLLM_DEFECTS, "leak/consumer"], ["leak/consumer"])],
)
def test_what_is_vllms_own_fails_no_campaign_of_the_library(
    groups: list[str], new: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the command line."""
    monkeypatch.setattr(api, "_executor", lambda *_: TwoRuns(groups))
    ran = api.campaign(range(3327, 3328), connector="reference")
    assert [group["group"] for group in ran.summary["groups"]] == sorted(groups)
    assert ran.new_groups == new
    assert ran.passed is (not new)


def test_a_run_is_shown_in_a_line() -> None:
    """Whoever prints it at a prompt asked for no story."""
    leak = Violation("leak", 5.0, "p0", "req-0", "one block is held", {})
    specs = workload_of(Scenario(), random.Random(0))
    outcome = Outcome(
        verdict="violation",
        violations=[leak, leak],
        requests={"total": 1},
        workload=describe(specs),
        virtual_s=1.0,
        wall_s=1.0,
        guest_s=1.0,
        engine_steps=1,
        events=1,
        event_hash="0",
        seed=0,
        scenario={},
        notes={},
    )
    ran = Run(outcome=outcome, faults=[], coverage={}, text="long", artifact="runs/held")
    assert repr(ran) == "Run(verdict='violation', rules=['leak'], artifact='runs/held')"
