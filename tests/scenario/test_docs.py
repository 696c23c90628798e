"""The commands in the documents do what the documents say.

A fenced ``console`` block after a line ``<!-- run -->`` (or ``<!-- run: exit N -->``) is executed.
Its output has to contain every line that the block shows, whatever the numbers in it; ``...``
stands for lines that are left out.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.cli import dispatch

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"^<!-- run(?:: exit (?P<code>\d+))? -->\n```console\n"
    r"\$ (?:PYTHONPATH=(?P<path>\S+) )?faultlab (?P<arguments>[^\n]+)\n(?P<shown>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = "<!-- run"
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Example:
    """One block: where it is, what to type, and what is then to be seen."""

    page: str
    path: str | None
    arguments: str
    exit_code: int
    shown: str


def examples() -> Iterator[Example]:
    for page in PAGES:
        for found in _BLOCK.finditer(page.read_text()):
            code = int(found["code"] or 0)
            yield Example(page.name, found["path"], found["arguments"], code, found["shown"])


EXAMPLES = list(examples())


def without_numbers(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [_NUMBER.sub("#", line) for line in lines if line not in ("", "...")]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.page}: {e.arguments[:40]}")
def test_a_command_in_the_documents_prints_what_they_show(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code and output are those on the page."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")  # artifacts are written where a command runs
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    if example.path is not None:
        monkeypatch.syspath_prepend(example.path)
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen):
        code = dispatch.run(shlex.split(example.arguments))
    assert code == example.exit_code
    printed = without_numbers(screen.getvalue())
    assert [line for line in without_numbers(example.shown) if line not in printed] == []


def test_every_mark_belongs_to_a_block_that_is_run() -> None:
    """A mark that the pattern misses would be an example that nobody checks."""
    marks = sum(page.read_text().count(_MARK) for page in PAGES)
    assert marks == len(EXAMPLES) >= 5
