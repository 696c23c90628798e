"""What ``pytest hw_tests`` does when hardware was asked for: first a preflight, then no skips."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hw_tests.arms import run_beside
from hw_tests.child import ChildFailed
from hw_tests.conformance import CASES

ROOT = Path(__file__).parents[2]
SKIPS = """
import pytest

def test_says_so_itself():
    pytest.skip("in the test")

@pytest.mark.skipif(True, reason="by a mark")
def test_is_marked(): ...

@pytest.fixture
def machine():
    pytest.skip("in a fixture")

def test_needs_a_machine(machine): ...

@pytest.mark.xfail(reason="known", strict=True)
def test_is_known_to_fail():
    assert False

def test_runs(): ...
"""


# In place of hw_tests.arms, which would look at the machine.
STAND_IN = """
import json, os, pathlib, sys, types
from hw_tests.preflight import Finding

def preflight(peers):
    asked = pathlib.Path(os.environ["ASKED"])
    asked.write_text(asked.read_text() + json.dumps(list(peers)) + "\\n")
    bad = [Finding(f"check {n}", False, "F", "N", f"R{n}") for n in json.loads(os.environ["LACKS"])]
    return [Finding("good", True, "F", "N", None), *bad]

class Absent:
    unavailable = staticmethod(lambda: "needs CPython 3.10")

arms = types.ModuleType("hw_tests.arms")
arms.ARMS = {"sim": None, "rocm": None, "mori-cpu": Absent}
arms.Arm, arms.preflight = object, preflight
sys.modules["hw_tests.arms"] = arms
"""


def run(folder: Path, *arguments: str, lacks: str = "[]") -> tuple[int, str]:
    """Exit code and output of pytest on what is in the folder, on a machine that lacks that."""
    asked = folder / "asked"
    asked.write_text("")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "stand_in", "-p", "hw_tests.conftest"]
    command += ["-p", "no:faultlab", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder)]
    paths = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "LACKS": lacks, "ASKED": str(asked)}
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def counts(said: str) -> dict[str, int]:
    """By outcome, as the last line tells."""
    summary = [line for line in said.strip().splitlines() if " in " in line][-1]
    return {what: int(n) for n, what in re.findall(r"(\d+) ([a-z]+)", summary)}


ASKS = """
import pytest

@pytest.fixture
def engines(): ...

def test_asks(engines): ...

@pytest.mark.xfail(reason="known", strict=True)
def test_fails(engines):
    assert False

def test_asks_nothing(): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_one')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    return tmp_path


def test_every_kind_of_skip_fails_where_hardware_is_required(folder: Path) -> None:
    """In a test, by a mark, in a fixture, and of a whole module; an expected failure stays one."""
    code, said = run(folder, "--continue-on-collection-errors", "--arm=rocm", "--require-hardware")
    found = counts(said)
    assert code == 1
    outcomes = {key: n for key, n in found.items() if key in {"failed", "passed", "xfailed"}}
    assert outcomes == {"failed": 1, "passed": 1, "xfailed": 1}, said
    assert found["errors"] == 3, said
    assert "skipped" not in found
    for reason in ("in the test", "by a mark", "in a fixture", "could not import 'no_such_one'"):
        assert f"--require-hardware is set: {reason}" in said


def test_what_needs_the_simulator_says_so_where_there_is_none(folder: Path) -> None:
    """Collected or run, nothing is left out in silence; where hardware is required it fails."""
    (folder / "test_calibration.py").write_text("import simpy\n")
    (folder / "without.py").write_text("import sys; sys.modules['simpy'] = None\n")
    why = "test_calibration.py needs the simulator, and simpy is not installed here"
    for arguments in (["--arm=rocm"], ["--arm=rocm", "--collect-only"]):
        code, said = run(folder, "-p", "without", *arguments)
        assert (code, why in said) == (0, True), said
    code, said = run(folder, "-p", "without", "--arm=rocm", "--require-hardware")
    assert f"--require-hardware is set: {why}" in said


def test_a_skip_is_a_skip_otherwise(folder: Path) -> None:
    code, said = run(folder)
    assert code == 0
    assert counts(said)["skipped"] == 4
    assert (folder / "asked").read_text() == "", "sim needs nothing of the machine"


@pytest.mark.parametrize(
    "narrowed",
    [
        [
            "-k",
            "no_such",
            "-m",
            "no_such",
            "--deselect=test_skips.py",
            "-p",
            "cacheprovider",
            "--lf",
        ],
        ["-n", "1", "--peer", "node2:6300"],
    ],
)
def test_nothing_leaves_the_preflight_out(folder: Path, narrowed: list[str]) -> None:
    """Each missing thing is told once, with its remedy; no test has run, and the code is 1."""
    code, said = run(folder, "--arm=rocm", *narrowed, lacks="[1, 2]")
    assert code == 1, said
    for number in (1, 2):
        assert said.count(f"MISSING: check {number}: found F; needed N\n    fix: R{number}\n") == 1
    assert "ok: good" not in said
    assert "unverified on hardware" in said
    assert "passed" not in said
    peers = ["node2:6300"] if "--peer" in narrowed else []
    assert (folder / "asked").read_text().splitlines() == [json.dumps(peers)]


def test_a_machine_that_lacks_nothing_is_looked_at_once(folder: Path) -> None:
    code, said = run(folder, "--arm=rocm", "-k", "runs")
    assert (code, counts(said)["passed"]) == (0, 1)
    assert (folder / "asked").read_text() == "[]\n"


@pytest.mark.parametrize(("ci", "code", "outcome"), [("true", 1, "error"), ("", 0, "skipped")])
def test_an_arm_that_cannot_be_had_fails_in_ci(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ci: str, code: int, outcome: str
) -> None:
    """Elsewhere its tests are skipped, with the reason."""
    (folder / "test_arm.py").write_text("def test_uses_the_arm(arm): ...\n")
    monkeypatch.setenv("CI", ci)
    found, said = run(folder, "--arm=mori-cpu", "-k", "uses_the_arm", "-rs")
    assert found == code, said
    assert "needs CPython 3.10" in said
    assert outcome in counts(said), said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--require-hardware"], "--require-hardware: --arm sim needs nothing of this"),
        (["--peer", "node2:6300"], "--peer node2:6300: --arm sim needs nothing of this"),
        (["--setup-plan"], "--setup-plan: no test would run"),
        (["--arm=rocm", "--setup-only"], "--setup-only: no test would run"),
        (
            ["--arm=rocm", "--require-hardware", "--collect-only"],
            "--collect-only with --require-hardware: nothing would be tested",
        ),
    ],
)
def test_an_option_that_tests_nothing_or_is_without_effect_is_refused(
    folder: Path, given: list[str], told: str
) -> None:
    """By pytest's exit code for bad usage."""
    code, said = run(folder, *given)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert told in said


def test_what_asks_no_hardware_is_not_enough_where_it_is_required(folder: Path) -> None:
    """Beside what does it may pass; with processes of xdist, too."""
    file = folder / "test_asks.py"
    file.write_text(ASKS)
    for selected, code in (("asks", 0), ("nothing", 1), ("nothing or fails", 1)):
        for more in ([], ["-n", "1"]):
            given = [
                f"--deselect={folder / 'test_skips.py'}",
                f"--ignore={folder / 'test_module.py'}",
            ]
            given += ["--arm=rocm", "-k", selected, *more]
            found, said = run(folder, *given, "--require-hardware")
            assert (found, "nothing of it was tested" in said) == (code, bool(code)), said
            assert run(folder, *given)[0] == 0


def test_nothing_runs_without_assertions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of cases are in no module of which pytest keeps them."""
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    code, said = run(folder, "-k", "runs")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "PYTHONOPTIMIZE: nothing would be asserted" in said
    with pytest.raises(ChildFailed, match="PYTHONOPTIMIZE: nothing would be asserted"):
        run_beside("rocm", CASES[0], Path(sys.executable), os.environ)


def test_a_case_is_that_of_these_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not of an older copy, which may be where the tests are started."""
    (tmp_path / "hw_tests" / "arms").mkdir(parents=True)
    (tmp_path / "hw_tests/arms/run_case.py").write_text("import sys; print(sys.argv[2])")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChildFailed, match="ValueError"):
        run_beside("rocm", CASES[0]._replace(section="no"), Path(sys.executable), os.environ)
