"""Command lines of the documents that are not faultlab's, and the targets of the Makefile."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from doc_commands import Line, lines
from doc_shell import SOAK, command, run_in_shell
from source_tree import ROOT

pytestmark = pytest.mark.soak
LINES = {command(line): line for line in lines() if command(line) in SOAK}
_LEFT_OUT = (".git", ".venv", "__pycache__", "build", "dist", "faultlab-*", "hw-results", ".mori*")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, with an environment that is this interpreter's and counts as set up."""
    copy = tmp_path_factory.mktemp("sources") / "faultlab"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    environment = copy / ".venv"
    environment.mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".installed":
            (environment / path.name).symlink_to(path)
    (environment / ".installed").touch()
    return copy


@pytest.mark.parametrize("line", LINES.values(), ids=list(LINES))
def test_a_line_ends_well(line: Line, sources: Path) -> None:
    """In the sources that are here."""
    done = run_in_shell(line.script, sources)
    assert done.returncode == 0, done.stdout + done.stderr
    assert line.text != "make docs" or (sources / "build/site/index.html").is_file()


@pytest.mark.parametrize(("target", "told"), [("help", "make soak"), ("demo", "faultlab demo: ")])
def test_a_target_ends_well(target: str, told: str, sources: Path) -> None:
    """Of those that no block of a page has."""
    done = run_in_shell(f"make {target}", sources)
    assert done.returncode == 0, done.stdout + done.stderr
    assert told in done.stdout


def test_what_is_written_for_a_person_is_up_to_date(sources: Path) -> None:
    """Formatting, and rows of requirements, change nothing; a file without format gets one."""
    odd = sources / "faults" / "odd.py"
    odd.write_text('"""Odd."""\nx   =  1\n')
    done = run_in_shell("make format requirements", sources)
    assert done.returncode == 0, done.stdout + done.stderr
    assert odd.read_text() == '"""Odd."""\n\nx = 1\n'
    odd.unlink()
    for name in ("docs/requirements.md", "faults/artifact.py", "sim/testbed.py"):
        assert (sources / name).read_bytes() == (ROOT / name).read_bytes()
