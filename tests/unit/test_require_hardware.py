"""What a skip is when hardware was asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def counts(folder: Path, *arguments: str) -> tuple[int, dict[str, int], str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "hw_tests.conftest", "-p", "no:faultlab"]
    command += ["-p", "no:cacheprovider", f"--rootdir={folder}", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    summary = done.stdout.strip().splitlines()[-1]
    found = {what: int(n) for n, what in re.findall(r"(\d+) ([a-z]+)", summary)}
    return done.returncode, found, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_one')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_every_kind_of_skip_fails_where_hardware_is_required(folder: Path) -> None:
    """In a test, by a mark, in a fixture, and of a whole module; an expected failure stays one."""
    code, found, said = counts(folder, "--continue-on-collection-errors", "--require-hardware")
    assert code == 1
    outcomes = {key: n for key, n in found.items() if key in {"failed", "passed", "xfailed"}}
    assert outcomes == {"failed": 1, "passed": 1, "xfailed": 1}, said
    assert found["errors"] == 3, said
    assert "skipped" not in found
    for reason in ("in the test", "by a mark", "in a fixture", "could not import 'no_such_one'"):
        assert f"--require-hardware is set: {reason}" in said


def test_a_skip_is_a_skip_otherwise(folder: Path) -> None:
    code, found, _ = counts(folder)
    assert code == 0
    assert found["skipped"] == 4
