"""Every command line of faultlab in the documents is one that works, and some test runs it."""

from __future__ import annotations

import shlex

import pytest
from doc_commands import BY_OTHERS, LONG, QUICK, Line, inline, lines, parse
from doc_inline import IN_TEXT, TEXT_BY_OTHERS, to_run
from source_tree import ROOT
from typer.exceptions import TyperException

LINES = [line for line in lines() if line.program == "faultlab"]


@pytest.mark.parametrize("line", dict.fromkeys(LINES), ids=lambda line: line.text)
def test_the_parser_accepts_every_command_line(line: Line) -> None:
    """Its command exists, its options do, and values have the right type."""
    parse(line.arguments)


def test_running_text_names_commands_and_options_that_exist() -> None:
    """It may leave out what a command needs (``faultlab report``), or say ``...`` for it."""
    for line in (line for line in dict.fromkeys(inline()) if line.program == "faultlab"):
        words = shlex.split(line.text.partition(" > ")[0])[1:]
        try:
            parse([word for word in words if word != "..."])
        except TyperException as error:
            said = error.format_message()
            if not said.startswith("Missing "):
                pytest.fail(f"{line.page}: {line.text}: {said}")


def test_every_command_line_in_a_block_is_run_by_a_test() -> None:
    """It is marked, or in one table; and no table has a line that no page has."""
    tables = [*QUICK, *LONG, *BY_OTHERS]
    assert len(tables) == len(set(tables))
    unmarked = {line.text for line in LINES if not line.is_marked}
    remedy = "mark the block, or give the line its place in tests/tidy/doc_commands.py"
    assert unmarked - set(tables) == set(), remedy
    assert set(tables) - unmarked == set(), "no page has these any more"
    assert sum(line.is_marked for line in LINES) >= 15


def test_every_command_of_running_text_is_run_by_a_test() -> None:
    """As far as it can be typed as it stands; and no table has one that no page has."""
    tables = [*IN_TEXT, *TEXT_BY_OTHERS]
    assert len(tables) == len(set(tables))
    wanted = {line.text for line in to_run()}
    remedy = "give the command its place in tests/tidy/doc_inline.py"
    assert wanted - set(tables) == set(), remedy
    assert set(tables) - {line.text for line in inline()} == set(), "no page has these any more"
    assert len(wanted) >= 40


def test_tests_that_are_named_exist() -> None:
    """Whatever runs a line is a test, or a file of them."""
    for named in [*BY_OTHERS.values(), *TEXT_BY_OTHERS.values()]:
        file, _, test = named.partition("::")
        assert file.startswith("tests/")
        assert (ROOT / file).is_file(), named
        assert not test or f"def {test}(" in (ROOT / file).read_text(), named


@pytest.mark.parametrize(
    "text", ["faultlab rum", "faultlab run --sed 1", "faultlab run --seed x", "faultlab diff a"]
)
def test_a_line_with_a_mistake_is_refused(text: str) -> None:
    """A wrong name, option, value or number of arguments."""
    with pytest.raises(TyperException):
        parse(Line("page", text).arguments)


def test_continued_and_commented_lines_are_whole() -> None:
    """As a shell would read them."""
    from doc_commands import commands_in

    block = "faultlab run a \\\n  --seed 2   # twice\n\n# a word\nx '{\n  1}'\ny <<'E'\n2\nE\nz\n"
    assert commands_in(block) == ["faultlab run a --seed 2", "x '{ 1}'", "y <<'E'", "z"]
    assert commands_in("$ x \\\n  1\nprinted\n$ y\n", prompt=True) == ["x 1", "y"]
