from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from report_world import Page, campaign

from faults.campaign.result import Failure, SeedResult, summarize
from faults.campaign.store import RESULTS_FILE, read
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.directories import ARTIFACT_FILE, PLAN_FILE
from faults.report import campaign_page, comparison_page
from sim.lifecycle import PHASES

HOSTILE = "</td><script src=http://x.invalid/a.js>alert(1)</script>\"'><img onerror=alert(2) &amp;"


def test_the_heat_map_has_the_numbers_of_the_summary(tmp_path: Path) -> None:
    """Every kind that reached somebody, every phase: hits, 0 for a hole, and nothing where a pair
    cannot be."""
    directory = campaign(tmp_path / "night", 40)
    plan, results = read(directory)
    summary = summarize(results, [], seeds=plan.seeds, wall_s=1.0, interrupted=False)
    page = Page(campaign_page(directory))
    (table,) = [t for t in page.tables if t[0][1:] and t[0][1][1] == "handshake"]
    shown = {row[0][1]: [text for _, text in row[1:]] for row in table[1:]}
    expected = {
        kind: [str(row[phase]) if phase in row else "" for phase in PHASES]
        for kind, row in summary["fault_coverage"].items()
        if any(row.values())
    }
    assert shown == expected
    apart = {kind for kind, _ in summary["holes"]} - set(expected)
    assert f"{len(apart)} kinds reached no request: {', '.join(sorted(apart))}" in page.text
    holes = [a for row in table[1:] for a, _ in row[1:] if a.get("class") == "hole"]
    assert len(holes) == sum(kind in expected for kind, _ in summary["holes"])
    cells = [hits for row in summary["fault_coverage"].values() for hits in row.values()]
    assert f"{sum(map(bool, cells))} of {len(cells)} possible pairs" in page.text


def test_a_campaign_of_ten_thousand_runs_makes_a_small_page_soon(tmp_path: Path) -> None:
    """What is drawn is counted first, so the page does not grow with the runs."""
    sizes = []
    for count in (100, 10_000):
        directory = campaign(tmp_path / str(count), count)
        began = time.process_time()
        text = campaign_page(directory)
        assert time.process_time() - began < 5.0
        page = Page(text)
        page.require_self_contained()
        sizes.append((len(text.encode()), len(page.elements)))
    (small_bytes, small_elements), (large_bytes, large_elements) = sizes
    assert large_bytes < min(300_000, 2 * small_bytes)
    assert large_elements < 2 * small_elements


def test_each_group_is_listed_with_its_runs_and_seeds(tmp_path: Path) -> None:
    """The most frequent first, and known ones are marked."""
    directory = campaign(tmp_path / "night", 30)
    plan, results = read(directory)
    summary = summarize(results, [], seeds=plan.seeds, wall_s=1.0, interrupted=False)
    known = summary["groups"][0]["group"]
    page = Page(campaign_page(directory, [known]))
    (table,) = [t for t in page.tables if t[0][0][1] == "group"]
    rows = [[text for _, text in row] for row in table[1:]]
    assert [row[1] for row in rows] == [str(group["seeds"]) for group in summary["groups"]]
    assert rows[0][0] == f"{known} known"
    tiles = f"{summary['runs']} runs {summary['passed']} passed {summary['failed']} failed"
    assert tiles in page.text


def test_names_from_outside_cannot_become_markup(tmp_path: Path) -> None:
    """Of groups, details, settings, versions and connectors, on every page."""
    directory = campaign(tmp_path / "night", 3)
    failure = Failure(HOSTILE, HOSTILE, HOSTILE)
    failed = SeedResult(seed=0, status="failed", failures=[failure], artifact=HOSTILE)
    error = SeedResult(seed=1, status="error", detail=HOSTILE)
    lines = [msgspec.json.encode(result) + b"\n" for result in (failed, error)]
    (directory / RESULTS_FILE).write_bytes(b"".join(lines))
    plan, _ = read(directory)
    options = msgspec.structs.replace(plan.options, connector=HOSTILE)
    hostile = msgspec.structs.replace(plan, options=options, versions={HOSTILE: HOSTILE})
    (directory / PLAN_FILE).write_bytes(msgspec.json.encode(hostile))
    other = campaign(tmp_path / "other", 3)
    for text in (campaign_page(directory), comparison_page(directory, other)):
        page = Page(text)
        page.require_self_contained()
        assert " ".join(HOSTILE.split()) in page.text
        assert text.count("<style>") == 1


def test_two_campaigns_are_compared_seed_by_seed(tmp_path: Path) -> None:
    """Groups that only one side has, how the same seeds ended, and what was given that differs."""
    a = campaign(tmp_path / "a", 20, beside="hybrid")
    b = campaign(tmp_path / "b", 20, connector="hybrid", seed=1, beside="moriio")
    passed = [SeedResult(seed=seed, status="passed", wall_s=1, virtual_s=1) for seed in range(10)]
    (b / RESULTS_FILE).write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in passed))
    page = Page(comparison_page(a, b))
    page.require_self_contained()
    assert page.text.startswith("moriio, seeds 0 to 19 and hybrid, seeds 0 to 19")
    assert "10 seeds on two sides" in page.text
    (crossed,) = [t for t in page.tables if t[0][0][1] == "A, and B across"]
    in_a = [result.status for result in read(a)[1] if result.seed < 10]
    assert [row[1][1] for row in crossed[1:]] == [
        str(in_a.count(status))
        for status in ("passed", "failed", "refused", "failed-closed", "error")
    ]
    assert "New in B 0 groups" in page.text
    given = [[text for _, text in row] for t in page.tables for row in t if len(row) == 3]
    assert ["connector", "moriio", "hybrid"] in given


def test_what_cannot_be_reported_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of something else, campaigns without a common seed, a file that is there."""
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    campaign(Path("night"), 2)
    campaign(Path("none"), 0 + 1)
    Path("none", RESULTS_FILE).write_bytes(b"")
    for run in (Path("run-a"), Path("run-b")):
        run.mkdir()
        (run / ARTIFACT_FILE).touch()
    for arguments, said in (
        (["empty"], "empty: has no artifact.json (of a run) and no campaign.json (of a camp"),
        (["gone"], "gone: does not exist"),
        (["night", "none", "--known", "x.yaml"], "only the report of one campaign"),
        (["night", "none"], "have no seed in common"),
        (["night", "none", "empty"], "3 directories were given"),
        (["run-a", "run-b"], "two recorded runs; compare them with faultlab diff run-a run-b"),
        (["night", "--out", "gone/x.html"], "gone/x.html: cannot be written"),
    ):
        assert dispatch.run(["report", *arguments]) == ExitCode.BAD_USAGE
        assert said in " ".join(capsys.readouterr().err.split())
    assert dispatch.run(["report", "night"]) == ExitCode.OK
    assert dispatch.run(["report", "night"]) == ExitCode.OK  # the same page once more
    Path("night/report.html").write_text("mine")
    assert dispatch.run(["report", "night"]) == ExitCode.BAD_USAGE
    assert "add --force" in capsys.readouterr().err
    assert dispatch.run(["report", "night", "--force"]) == ExitCode.OK


def test_what_compare_has_left_is_one_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory has both sides."""
    monkeypatch.chdir(tmp_path)
    campaign(Path("both/before"), 4, beside="hybrid")
    campaign(Path("both/after"), 4, connector="hybrid", beside="moriio")
    assert dispatch.run(["report", "both"]) == ExitCode.OK
    assert "4 seeds on two sides" in Page(Path("both/report.html").read_text()).text
