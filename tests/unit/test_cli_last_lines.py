"""What a failing command ends with, and how that looks on a terminal, in a pipe, and if narrow."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from report_world import Log
from rich.cells import cell_len
from rich.console import Console

from faults import artifact
from faults.campaign.compare import compare
from faults.campaign.result import Failure, SeedResult, summarize
from faults.campaign.swarm import SwarmOptions
from faults.cli import campaign_summary, comparison_summary, dispatch
from faults.cli.outcome import ExitCode, Outcome
from faults.cli.run_summary import render_findings, render_run
from faults.mutants.catalog import MUTANTS
from faults.mutants.hunt import Hunt
from faults.story import tell
from faults.wording import replay_line
from sim.kernel.log import EventLog
from sim.oracles import Violation
from sim.outcome import RunResult
from sim.run import run
from sim.scenario import Scenario, UniformWorkload

SENTENCE = "d0 read wrong bytes for r0-d0, which p0 had given to others long before it was read"
TINY = UniformWorkload(requests=1, prompt_tokens=(20, 20), output_tokens=(2, 2))
WIDTHS = (40, 60, 100)


def result() -> RunResult:
    """Of a run that read what another request had written."""
    extent = {
        "block_ids": [8],
        "owners": ["r7"],
        "source_nodes": ["p0"],
        "source_block_ids": [4],
        "transfers": [],
    }
    wrong = Violation("wrong-bytes", 0.0, "d0", "r0-d0", SENTENCE, {"extent": extent})
    told = Log().held("p0", "r0-p0", [4, 4]).freed("p0", "r0-p0").held("p0", "r7-p0", [4, 4])
    told.add("d0/core", "violation", oracle="wrong-bytes", node="d0", request="r0-d0", detail="")
    log = EventLog()
    for record in told.records:
        log.append(*record)
    outcome = SimpleNamespace(
        verdict="violation",
        violations=[wrong],
        signature=lambda: ["wrong-bytes"],
        event_hash=log.digest(),
    )
    return cast(
        "RunResult", SimpleNamespace(outcome=outcome, log=log, guest_digest="", injected=())
    )


def failed(seed: int, kept: Path | None) -> SeedResult:
    failures = [Failure("wrong-bytes/consumer", "wrong-bytes", SENTENCE)]
    kept_in = None if kept is None else str(kept)
    return SeedResult(seed=seed, status="failed", failures=failures, artifact=kept_in)


def shown(render: Callable[[Console], None]) -> list[str]:
    screen = io.StringIO()
    render(Console(file=screen, width=200))
    return screen.getvalue().splitlines()


def of_campaign(results: Iterable[SeedResult]) -> list[str]:
    document = summarize(list(results), [], seeds=range(2), wall_s=1.0, interrupted=False)
    return shown(lambda console: campaign_summary.render(document, SwarmOptions(), console))


def of_comparison(results: Iterable[SeedResult]) -> list[str]:
    before, after = [SeedResult(seed=1, status="passed")], list(results)
    document: dict[str, Any] = {
        **compare(before, after), "known": [], "seeds": 1, "errors": [], "interrupted": False,
        "not_run": 0, "passed": {"before": 1, "after": 0},
    }  # fmt: skip
    for entry in document["new"]:
        entry["run_again"] = f"faultlab replay {entry['artifact']}"
    return shown(lambda console: comparison_summary.render(document, None, console))


def test_a_run_that_fails_says_what_makes_it_smaller_before_what_runs_it_again() -> None:
    """One that was kept and broke no rule has nothing to make smaller."""
    kept, ran = Path("my runs/kept"), run(Scenario(workload=TINY))
    passed = shown(lambda console: render_run(console, Scenario(), ran, kept))
    assert passed[-2:] == [f"written to {kept}", "faultlab replay 'my runs/kept'"]
    ran.outcome.violations.extend(result().outcome.violations)
    failing = shown(lambda console: render_run(console, Scenario(), ran, kept))
    assert failing[-3:] == [
        f"written to {kept}",
        "smaller: faultlab shrink 'my runs/kept'",
        "faultlab replay 'my runs/kept'",
    ]


@pytest.mark.parametrize("summary", [of_campaign, of_comparison])
def test_a_summary_ends_with_sentence_story_and_replay_line_of_what_is_new(
    summary: Callable[[Iterable[SeedResult]], list[str]], tmp_path: Path
) -> None:
    """The story of the run that was kept; one that was not, or cannot be read, has none."""
    kept = tmp_path / "kept"
    artifact.write(kept, Scenario(), result(), command_line=[])
    lines = summary([failed(1, kept)])
    at = lines.index("how it came about")
    story = [moment.text for moment in tell(result().log.records, result().outcome.violations)]
    assert len(story) > 2
    assert f"  first seed 1: faultlab replay {kept}" in lines
    assert lines[at - 2].strip() == SENTENCE
    assert [line.partition(" s  ")[2].strip() for line in lines[at + 1 : -3]] == story
    assert lines[-1] == f"faultlab replay {kept}"
    (kept / artifact.EVENTS_FILE).write_text("edited")
    for other in (failed(1, kept), failed(1, None), failed(1, tmp_path / "gone")):
        lines = summary([other])
        assert "how it came about" not in lines
        assert lines[-4].strip() == SENTENCE
        assert "replay" in lines[-1]


def test_a_campaign_says_what_makes_its_new_failures_smaller(tmp_path: Path) -> None:
    """Below what draws it, if any is new and was kept; nothing is said of known ones."""
    kept = tmp_path / "my night/failures/seed-1"

    def below_browser(result: SeedResult, known: list[str]) -> list[str]:
        document = summarize([result], known, seeds=range(2), wall_s=1.0, interrupted=False)
        lines = shown(lambda console: campaign_summary.render(document, SwarmOptions(), console))
        report = f"in a browser: faultlab report '{tmp_path}/my night'"
        return lines[lines.index(report) + 1 :][:1] if report in lines else lines

    smaller = f"smaller, all of them: faultlab shrink '{tmp_path}/my night'"
    assert below_browser(failed(1, kept), []) == [smaller]
    assert below_browser(failed(1, kept), ["wrong-bytes/consumer"]) == []
    assert not any("shrink" in line for line in below_browser(failed(1, None), []))


def test_mutants_that_were_not_caught_are_tried_again_by_the_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the seeds that were given, so that a fix of an oracle can be seen to help."""
    names = list(MUTANTS)[:2]
    hunts = [Hunt(name=name, breaks="b", place="p", runs=3, seed=None) for name in names]
    hunts[0] = msgspec.structs.replace(hunts[0], seed=2, groups=["leak"])
    monkeypatch.setattr("faults.cli.mutants.hunt_all", lambda *_: hunts)
    assert dispatch.run(["mutants", "--seeds", "2:5", *names]) == ExitCode.VIOLATION
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"faultlab mutants --seeds 2:5 {names[1]}"


class Terminal(io.StringIO):
    """Takes what is printed as a terminal does."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdout", [Terminal, io.StringIO])
def test_there_is_colour_on_a_terminal_only(
    stdout: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe and a file get the same words without."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = stdout()
    monkeypatch.setattr(sys, "stdout", screen)
    failing = Outcome({}, lambda console: render_findings(console, result()), 1)
    monkeypatch.setattr(dispatch, "build", lambda _: lambda *_, **__: failing)
    assert dispatch.run(["run"]) == ExitCode.VIOLATION
    red = "\x1b[1;31mwrong-bytes\x1b[0m"
    assert (red in screen.getvalue()) == screen.isatty()
    assert ("\x1b" in screen.getvalue()) == screen.isatty()
    assert "how it came about" in screen.getvalue()


def test_findings_and_story_are_as_wide_as_the_screen() -> None:
    """No line is longer and no word is lost; a wide screen has fewer lines."""
    lengths, words = [], set()
    for width in WIDTHS:
        screen = io.StringIO()
        render_findings(Console(file=screen, width=width), result())
        text = screen.getvalue()
        assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= width
        lengths.append(len(text.splitlines()))
        words.add(" ".join(text.split()))
    assert len(words) == 1
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


def test_a_replay_with_a_patch_is_run_again_with_it() -> None:
    """And what has a space in its name stays one word."""
    assert replay_line(Path("runs/held")) == "faultlab replay runs/held"
    patched = replay_line(Path("my runs/held"), Path("~/my vllm"))
    assert patched == "faultlab replay 'my runs/held' --overlay '~/my vllm'"
