"""``faultlab shrink`` of a campaign: the kept run of each group becomes smaller."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from in_process_pool import InProcessPool

from faults import artifact, running
from faults.artifact import ARTIFACT_FILE
from faults.campaign import merge, store
from faults.campaign.campaign import Campaign
from faults.campaign.plan import Plan, plan_here
from faults.campaign.result import SeedResult
from faults.campaign.store import Store
from faults.campaign.swarm import SwarmOptions
from faults.cli import dispatch, shrink_run
from faults.cli.outcome import ExitCode
from faults.directories import FAILURES, what_is
from faults.report.campaign_page import campaign_page
from faults.running import FaultedRun
from sim.errors import TestbedError
from sim.scenario import Scenario

OPTIONS = SwarmOptions(
    models=("llama",),
    quiet_phase_s=2.0,
    settings={"workload.requests": "3", "extra_config.transfer_timeout": "1"},
)
SEEDS = range(10, 12)
MANY, ONE = "seed-10", "seed-11"
"""The run that stands for four groups, the first of the summary among them, and that of one."""
ENGINE_DIED = "liveness/engine-died/vllm.distributed.kv_transfer.kv_connector.v1.moriio"
FIRST_STEP = ["--max-runs", "4"]


def plan() -> Plan:
    return plan_here(OPTIONS, SEEDS, (1, 1))


@pytest.fixture(scope="module")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of two seeds, both of which fail."""
    directory = tmp_path_factory.mktemp("ran") / "night"
    with Store(directory, plan()) as kept:
        Campaign(kept).run(InProcessPool(), None, lambda result: None)  # type: ignore[arg-type]
    return directory


@pytest.fixture
def night(_ran: Path, tmp_path: Path) -> Path:
    return shutil.copytree(_ran, tmp_path / "night")


def shrink(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = dispatch.run(["shrink", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def rewrite_signature(run: Path, *signature: str) -> None:
    """As if the run had broken these rules."""
    recorded = msgspec.structs.replace(artifact.read_outcome(run), signature=list(signature))
    (run / ARTIFACT_FILE).write_bytes(msgspec.json.encode(recorded.sealed()))


def statuses(document: dict[str, Any]) -> dict[str, str]:
    return {Path(entry["run"]).name: entry["status"] for entry in document["runs"]}


def test_the_kept_run_of_each_group_becomes_smaller_once(
    night: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the summary, under a bar that says which of how many it is at; the report has
    the smaller scenarios. Given again, the command runs nothing."""
    titles = []

    @contextmanager
    def bar(title: str, total: int, *_: str, threaded: bool) -> Iterator[Any]:
        titles.append((title, total, threaded))
        yield lambda is_failed: None

    monkeypatch.setattr(shrink_run, "bar", bar)
    code, document = shrink(capsys, night, *FIRST_STEP)
    assert (code, document["shrunk"], document["interrupted"]) == (ExitCode.OK, 2, False)
    assert titles == [("run 1 of 2", 3, False), ("run 2 of 2", 3, False)]
    many, one = document["runs"]
    assert [Path(entry["run"]).name for entry in (many, one)] == [MANY, ONE]
    assert many["groups"][0] == "leak/producer"
    assert len(many["groups"]) == 4
    assert one["groups"] == [f"{ENGINE_DIED}.moriio_connector.MoRIIOConnectorWorker"
                             "._get_built_session"]  # fmt: skip
    page = campaign_page(night)
    for entry in (many, one):
        assert entry["runs"] <= 4
        assert entry["after"]["faults"] < entry["before"]["faults"]
        assert entry["directory"] == f"{entry['run']}-small"
        assert (Path(entry["directory"]) / "test_repro.py").is_file()
        assert f"shrunk, {entry['directory']}/scenario.yaml" in page
    monkeypatch.setattr(running, "run", None)
    code, document = shrink(capsys, night)
    assert (code, document["done_before"], document["shrunk"]) == (ExitCode.OK, 2, 0)


def test_a_campaign_is_the_same_with_what_became_smaller_in_it(
    night: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It goes on, is merged, and is told from others as before."""
    before = what_is(night), store.read(night), merge.merge([night])
    assert shrink(capsys, night, *FIRST_STEP)[0] == ExitCode.OK
    assert (what_is(night), store.read(night), merge.merge([night])) == before
    assert f"such as {night / FAILURES / MANY}" in what_is(night)
    merge.write(tmp_path / "merged", *merge.merge([night]), [])
    assert sorted(path.name for path in (tmp_path / "merged" / FAILURES).iterdir()) == [MANY, ONE]
    ran: list[SeedResult] = []
    with Store(night, plan(), resume=True) as kept:
        assert kept.done == set(SEEDS)
        campaign = Campaign(kept)
        campaign.run(InProcessPool(), None, ran.append)  # type: ignore[arg-type]
    assert (ran, campaign.document()["failed"]) == ([], 2)


def test_people_see_a_line_for_each_run_and_what_draws_them(
    night: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line replaces the report that is there, if there is one. What somebody has left who
    was killed while it was written is written again."""
    (night / FAILURES / f"{MANY}-small").mkdir()
    (night / FAILURES / f"{MANY}-small/scenario.yaml").write_text("cut sho")
    assert dispatch.run(["shrink", str(night), "--max-runs", "2"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 kept runs of 5 groups: 2 shrunk now"
    assert lines[2] == "leak/producer"
    at = night / FAILURES
    assert lines[6].endswith(f" (2 runs, the limit of --max-runs): {at / MANY}-small")
    assert lines[6].startswith("  faults ")
    assert lines[-1] == f"in a browser: faultlab report {night}"
    shutil.rmtree(f"{at / ONE}-small")
    (night / "report.html").touch()
    rewrite_signature(at / ONE, "wrong-bytes")
    assert dispatch.run(["shrink", str(night), "--max-runs", "2"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 kept runs of 5 groups: 1 done before, 1 could not be shrunk"
    assert f"  done before: {at / MANY}-small" in lines
    assert lines[-1] == f"in a browser: faultlab report {night} --force"


def test_what_does_not_fail_here_ends_no_other(
    night: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 only if there is nothing smaller of any run."""
    rewrite_signature(night / FAILURES / MANY, "wrong-bytes")
    code, document = shrink(capsys, night, "--max-runs", 1)
    assert (code, statuses(document)) == (ExitCode.OK, {MANY: "not-shrunk", ONE: "shrunk"})
    assert "does not fail in the recorded way here (wrong-bytes)" in document["runs"][0]["reason"]
    shutil.rmtree(night / FAILURES / f"{ONE}-small")
    rewrite_signature(night / FAILURES / ONE, "wrong-bytes")
    code, document = shrink(capsys, night, "--max-runs", 1)
    assert (code, document["not_shrunk"]) == (ExitCode.BAD_USAGE, 2)


def test_what_the_testbed_cannot_run_ends_no_other(
    night: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of what does not fail here, the reason is told."""
    original = running.run

    def run(scenario: Scenario) -> FaultedRun:
        if scenario.seed == SEEDS[0]:
            raise TestbedError("out of reach")
        return original(scenario)

    monkeypatch.setattr(running, "run", run)
    code, document = shrink(capsys, night, "--max-runs", 1)
    assert (code, statuses(document)) == (ExitCode.OK, {MANY: "not-shrunk", ONE: "shrunk"})
    assert document["runs"][0]["reason"] == "out of reach"


def test_a_smaller_one_of_other_rules_is_not_overwritten(
    night: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody may have put it there; the report does not show it either."""
    small = night / FAILURES / f"{MANY}-small"
    shutil.copytree(night / FAILURES / MANY, small)
    rewrite_signature(small, "wrong-bytes")
    content = (small / ARTIFACT_FILE).read_bytes()
    _, document = shrink(capsys, night, "--max-runs", 1)
    assert statuses(document) == {MANY: "not-shrunk", ONE: "shrunk"}
    assert "move it away" in document["runs"][0]["reason"]
    assert (small / ARTIFACT_FILE).read_bytes() == content


def test_after_ctrl_c_the_same_command_goes_on(
    night: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the run that it was at, of which nothing was written that would pass for done."""
    original, runs = running.run, 0

    def run(scenario: Scenario, **options: Any) -> FaultedRun:
        nonlocal runs
        runs += 1
        if runs > 4:  # two for the first, and two for the second
            raise KeyboardInterrupt
        return original(scenario, **options)

    monkeypatch.setattr(running, "run", run)
    code = dispatch.run(["shrink", str(night), "--max-runs", "2"])
    assert code == ExitCode.OK
    shutil.rmtree(night / FAILURES / f"{ONE}-small")
    runs = 3
    code, document = shrink(capsys, night, "--max-runs", 3)
    assert (code, document["interrupted"]) == (ExitCode.INTERRUPTED, True)
    assert statuses(document) == {MANY: "done-before", ONE: "left"}
    assert not (night / FAILURES / f"{ONE}-small").exists()
    monkeypatch.setattr(running, "run", original)
    code, document = shrink(capsys, night, "--max-runs", 2)
    assert (code, statuses(document)) == (ExitCode.OK, {MANY: "done-before", ONE: "shrunk"})


def test_what_is_smaller_is_in_the_same_groups(
    night: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rule, broken somewhere else, is another failure."""
    original, seen = running.run, dict[int, Scenario]()

    def run(scenario: Scenario) -> FaultedRun:
        faulted = original(scenario)
        if seen.setdefault(scenario.seed, scenario) != scenario:
            for violation in faulted.result.outcome.violations:
                violation.evidence.pop("traceback", None)
        return faulted

    monkeypatch.setattr(running, "run", run)
    _, document = shrink(capsys, night, *FIRST_STEP)
    for entry in document["runs"]:
        assert entry["runs"] == 4
        assert entry["after"] == entry["before"]


def test_of_a_campaign_there_is_nothing_to_write_elsewhere_or_to_shrink(
    night: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is refused with what to do instead."""

    def said(*arguments: object) -> str:
        assert dispatch.run(["shrink", *map(str, arguments)]) == ExitCode.BAD_USAGE
        return capsys.readouterr().err.replace("\n", " ")

    words = said(night, "--out", tmp_path / "small")
    assert "--out" in words
    assert "leave it out" in words
    shutil.rmtree(night / FAILURES)
    assert "run seed 10 again with another --out" in said(night)
    with Store(tmp_path / "clean", plan()) as kept:
        kept.add(SeedResult(seed=10, status="passed"))
    words = said(tmp_path / "clean")
    assert "none of its runs failed" in words
    assert "faultlab campaign --seeds" in words
