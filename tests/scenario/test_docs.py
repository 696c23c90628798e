"""The commands in the documents do what the documents say.

The blocks of a page that are marked (``tests/tidy/doc_commands.py`` says how) run one after another
in one directory, so a page can be a walk. The output has to contain every line that a block shows,
whatever the numbers in it; ``...`` stands for lines that are left out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from doc_commands import PAGES, QUICK, RUN, Line, lines
from doc_pages import run_page, typed
from doc_shell import QUICK as QUICK_IN_A_SHELL
from doc_shell import command, run_in_shell
from source_tree import ROOT

_MARK = re.compile(r"^<!-- (?:run|long)\b", re.MULTILINE)
_LAYERS = 47
IN_A_SHELL = {command(line): line for line in lines() if command(line) in QUICK_IN_A_SHELL}
MARKED = [page for page in PAGES if re.search(r"^<!-- run\b", page.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit codes and output are those on the page."""
    run_page(page, tmp_path, monkeypatch, long=False)


@pytest.mark.parametrize("line", QUICK)
def test_a_command_in_passing_ends_as_it_should(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output is not on the page."""
    assert typed(line, tmp_path, monkeypatch)[0] == QUICK[line]


@pytest.mark.parametrize("line", IN_A_SHELL.values(), ids=list(IN_A_SHELL))
def test_a_line_for_a_shell_ends_well(line: Line, tmp_path: Path) -> None:
    """One of them cuts a model's configuration, which has no more layers than it has types."""
    text = {"num_hidden_layers": _LAYERS, "layer_types": ["full"] * _LAYERS, "vocab_size": 9}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"text_config": text}))
    done = run_in_shell(line.script, ROOT, CUT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    if "$CUT" in line.text:
        cut = {"num_hidden_layers": 4, "layer_types": ["full"] * 4, "vocab_size": 9}
        assert json.loads(config.read_text()) == {"text_config": cut}
    else:
        assert done.stdout


def test_every_mark_belongs_to_a_block_that_is_run() -> None:
    """A mark that the pattern misses would be an example that nobody checks."""
    for page in PAGES:
        text = page.read_text()
        assert len(_MARK.findall(text)) == len(RUN.findall(text)), page
    assert len(MARKED) >= 5
