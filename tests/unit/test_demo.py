from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from faults.cli.outcome import plain_console
from faults.demo import show, tell_the_path
from faults.demo_acts import ACTS, Act, must_pass, must_read_wrong_bytes
from sim.errors import TestbedError
from sim.outcome import Outcome
from sim.run import run
from sim.scenario import Scenario, UniformWorkload

TINY = Scenario(workload=UniformWorkload(requests=1, prompt_tokens=(20, 20), output_tokens=(2, 2)))


@pytest.fixture(scope="module")
def passing() -> Outcome:
    return run(TINY).outcome


def act(objection: str | None, scenario: Scenario = TINY) -> Act:
    return Act("title", "this will happen", "it did", lambda: scenario, lambda _: objection)


def played(*acts: Act) -> tuple[int, str]:
    screen = io.StringIO()
    code = show(acts, Console(file=screen, width=200))
    return code, screen.getvalue()


def test_everything_as_announced_ends_with_0() -> None:
    """Each run is announced before it runs, and what it proved is said after."""
    code, text = played(act(None), act(None))
    assert code == 0
    assert len(re.findall(r"this will happen(?s:.*?)as announced: it did", text)) == 2


def test_the_first_surprise_ends_the_demonstration_with_3() -> None:
    """It says what was expected instead; later runs would prove nothing."""
    code, text = played(act("it was to fail"), act(None))
    assert code == 3
    assert "NOT as announced: it was to fail" in text
    assert text.count("this will happen") == 1


def test_a_file_gets_lines_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither wrapped nor padded, as what a piped command prints."""
    monkeypatch.delenv("COLUMNS", raising=False)
    words = "word " * 40
    screen = io.StringIO()
    show([replace(act(None), announcement=words)], plain_console(screen))
    lines = screen.getvalue().splitlines()
    assert lines[1] == words.rstrip()
    assert [line.rstrip() for line in lines] == lines
    assert len(lines[0]) < 200


@pytest.mark.parametrize("is_active", [False, True])
def test_a_shell_that_does_not_find_faultlab_is_told_how_to_type_it(
    is_active: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the demonstration prints commands, and make runs it in an environment of its own."""
    programs = tmp_path / "my env" / "bin"
    programs.mkdir(parents=True)
    (programs / "faultlab").touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(programs if is_active else tmp_path))
    screen = io.StringIO()
    tell_the_path(Console(file=screen, width=40))
    line = (
        "faultlab is not on your PATH: type 'my env/bin/faultlab' for it, or first: "
        "source 'my env/bin/activate'\n"
    )
    assert screen.getvalue() == ("" if is_active else line)


def test_a_run_that_does_not_end_is_a_surprise_too() -> None:
    """An error of any of our own kinds is told, not thrown."""
    broken = msgspec.structs.replace(TINY, overlay="/nowhere")
    code, text = played(act(None, broken))
    assert code == 3
    assert "UsageError: overlay" in text


def test_a_testbed_failure_is_a_surprise_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole in the testbed must not look like a success."""

    def fail(self: Act, console: Console) -> None:
        raise TestbedError("a hole")

    monkeypatch.setattr(Act, "play", fail)
    assert played(act(None))[0] == 3


def test_the_objections_know_a_pass_from_a_defect(passing: Outcome) -> None:
    """A pass that served too little is none, and wrong bytes need an owner."""
    assert must_pass(passing) is None
    short = msgspec.structs.replace(passing, requests={"total": 2, "length": 1, "abort": 1})
    assert must_pass(short) == "2 requests were to be served, and 1 were"
    assert "no rule was broken" in (must_read_wrong_bytes(passing) or "")


def test_the_demonstration_ships_what_it_plays() -> None:
    """Its scenarios are complete, and one of them can be run by name."""
    scenarios = [act.scenario() for act in ACTS]
    assert [bool(scenario.router.holds) for scenario in scenarios] == [False, True, False]
    assert scenarios[1].workload == scenarios[2].workload
    text = (Path(__file__).parents[2] / "faults" / "scenarios" / "late-hand-off.yaml").read_text()
    assert text.startswith("#")
