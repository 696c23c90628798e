from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_world import FAILING, Log, Page

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.report import without_faults
from faults.report.axis import LinearAxis
from faults.report.beside import beside
from faults.report.latency import requests_of
from faults.report.plots import PLOT_LEFT, PLOT_WIDTH
from sim.router.options import Abort, Hold, Retry, RouterOptions
from sim.scenario import Scenario


def answers(*requests: tuple[str, int, str, int]) -> Log:
    """Requests that arrive at once, each with the milliseconds to its end, outcome and tokens."""
    log = Log()
    for name, *_ in requests:
        log.add("router", "request-arrived", request=name)
        log.records[-1] = log.records[-1]._replace(time_ns=0)
    for name, took_ms, outcome, tokens in requests:
        log.add("router", "request-ended", request=name, outcome=outcome, tokens=tokens)
        log.records[-1] = log.records[-1]._replace(time_ns=took_ms * 1_000_000)
    return log


def test_a_run_is_drawn_beside_the_same_run_without_its_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The held request took 2.5 s longer than any does otherwise; the artifact is as it was."""
    monkeypatch.chdir(tmp_path)
    assert dispatch.run([*FAILING, "--out", "held"]) == ExitCode.VIOLATION
    plain = Path("held/report.html").read_bytes()
    line = ["report", "held", "--against-fault-free"]
    assert dispatch.run(line) == ExitCode.BAD_USAGE  # the plain page is there
    assert dispatch.run([*line, "--out", "cost.html"]) == ExitCode.OK
    page = Page(Path("cost.html").read_text())
    page.require_self_contained()
    told = re.findall(
        r"8 of 8 requests ended, half of them .*? all within ([\d.]+ m?s); 32", page.text
    )
    assert told == ["2.531 s", "32.29 ms"]
    assert len([a for a in page.named("path") if "curve" in (a.get("class") or "")]) == 4
    assert Path("held/report.html").read_bytes() == plain
    capsys.readouterr()
    for arguments, said in (
        (["held", "held", "--against-fault-free"], "is about one run"),
        (["gone", "--against-fault-free"], "gone: does not exist"),
    ):
        assert dispatch.run(["report", *arguments]) == ExitCode.BAD_USAGE
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_run_without_faults_has_nothing_to_be_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the message says what to leave out."""
    monkeypatch.chdir(tmp_path)
    dispatch.run(["run", "--requests", "1", "--set", "length_scale=0.02", "--out", "kept"])
    capsys.readouterr()
    assert dispatch.run(["report", "kept", "--against-fault-free"]) == ExitCode.BAD_USAGE
    assert "kept: has no faults" in capsys.readouterr().err


def test_all_that_is_done_to_requests_is_left_out_and_nothing_else() -> None:
    """Faults, holds, aborts and retries."""
    quiet = Scenario(seed=7, perturb=True, router=RouterOptions(hand_off_latency_us=300))
    router = RouterOptions(
        hand_off_latency_us=300,
        holds=(Hold("req-0", 1.0),),
        aborts=(Abort("req-1", 1.0),),
        retries=(Retry("req-2", 1.0),),
    )
    disturbed = Scenario(seed=7, perturb=True, router=router, faults=({"kind": "crash"},))
    assert without_faults(disturbed) == quiet
    assert without_faults(quiet) == quiet


def test_curves_are_those_of_the_requests_that_were_answered() -> None:
    """One that failed keeps the share below all, adds no tokens, and the epilogue is no load."""
    faulted = answers(("r1", 10, "length", 4), ("r2", 100, "stop", 6), ("r3", 20, "error", 1))
    quiet = answers(*((f"r{number}", 10, "length", 5) for number in (1, 2, 3)))
    for log in (faulted, quiet):
        log.add("router", "request-arrived", request="epilogue")
        log.add("router", "request-ended", request="epilogue", outcome="length", tokens=900)
    made = beside(requests_of(faulted.records), requests_of(quiet.records))
    assert [told.partition(" requests")[0] for told in made.told] == [
        "this run: 3 of 3", "without its faults: 3 of 3",
    ]  # fmt: skip
    right, bottom = PLOT_LEFT + PLOT_WIDTH, 140
    share, tokens = ([a["d"] for a in Page(plot).named("path")] for plot in made.plots)
    third = 140 - 120 / 3
    assert share == [
        f"M{PLOT_LEFT} {bottom}H{PLOT_LEFT}.0V{third:.1f}H{right}.0V60.0H{right}",
        f"M{PLOT_LEFT} {bottom}" + "".join(f"H{PLOT_LEFT}.0V{y}.0" for y in (100, 60, 20))
        + f"H{right}",
    ]  # fmt: skip
    tenth = PLOT_LEFT + PLOT_WIDTH / 10
    assert tokens[0] == (
        f"M{PLOT_LEFT} {bottom}H{tenth:.1f}V{140 - 120 * 4 / 15:.1f}"
        f"H{right}.0V{140 - 120 * 10 / 15:.1f}H{right}"
    )
    assert tokens[1].endswith(f"V20.0H{right}")


def test_nothing_answered_is_a_flat_line() -> None:
    """On either side, also without any request."""
    made = beside(requests_of(answers(("r1", 10, "error", 0)).records), [])
    assert made.told[1] == "without its faults: no request ended"
    for plot in made.plots:
        assert [a["d"] for a in Page(plot).named("path")] == [
            f"M{PLOT_LEFT} 140H{PLOT_LEFT + PLOT_WIDTH}"
        ] * 2


def test_a_plain_axis_has_round_numbers() -> None:
    """From 0 on, few enough to be read."""
    for high, last in ((2.531, "2.5"), (10.0, "10"), (0.031, "0.03"), (700.0, "700"), (1.0, "1")):
        ticks = LinearAxis(high, 0, 100).ticks()
        assert ticks[0] == (0, "0")
        assert ticks[-1][1] == last
        assert 4 <= len(ticks) <= 11
        assert ticks[-1][0] <= 100.001
