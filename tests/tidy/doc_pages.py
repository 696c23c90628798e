"""Runs the marked blocks of a page, as a reader would type them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest
from doc_commands import RUN, commands_in
from source_tree import ROOT

from faults.cli import dispatch

_FILE = re.compile(
    r"^<!-- file: (?P<name>\S+) -->\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def run_page(page: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, *, long: bool) -> None:
    """Run the blocks of ``page`` in order, with ``long`` also those that take a while."""
    text = page.read_text()
    for name, content in files(page).items():
        if "/" not in name:  # others belong to the sources
            (directory / name).write_text(content)
    for block in RUN.finditer(text):
        if block["how"] == "long" and not long:
            continue
        shown = block["text"]
        commands = commands_in(shown, prompt=True)
        assert commands, shown
        for command in commands:
            code, printed = typed(command, directory, monkeypatch)
            assert code == int(block["code"] or 0), f"{command}\n{printed}"
        if len(commands) == 1:
            lines = without_numbers(printed)
            wanted = without_numbers(_without_commands(shown))
            assert [line for line in wanted if line not in lines] == [], commands


def files(page: Path) -> dict[str, str]:
    """The files that a page has in full, by name."""
    return {found["name"]: found["text"] for found in _FILE.finditer(page.read_text())}


def typed(line: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code and the output of a command line in ``directory``, which is home as well."""
    docs = directory / "docs"
    if not docs.exists():
        docs.symlink_to(ROOT / "docs")
    monkeypatch.chdir(directory)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HOME", str(directory))
    *before, command = shlex.split(line)[: shlex.split(line).index("faultlab") + 1]
    assert command == "faultlab"
    for setting in before:
        monkeypatch.syspath_prepend(setting.removeprefix("PYTHONPATH="))
    arguments = shlex.split(line)[len(before) + 1 :]
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen):
        code = dispatch.run([os.path.expanduser(word) for word in arguments])
    return code, screen.getvalue()


def without_numbers(text: str) -> list[str]:
    """The lines of ``text`` that say something, with every number alike."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [_NUMBER.sub("#", line) for line in lines if line not in ("", "...")]


def _without_commands(shown: str) -> str:
    return "\n".join(line for line in shown.splitlines() if not line.startswith("$ "))
