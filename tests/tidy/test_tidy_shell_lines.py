"""Every other command line in the documents is run by a test too, or says what it needs."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.expression import Expression
from doc_commands import PAGES, Line, inline, lines
from doc_shell import ELSEWHERE, NEEDS, QUICK, SOAK, TARGETS, command, keys
from source_tree import ROOT

from connector.core.config import parse_settings
from faults.environment import INSTALL_LINES
from sim.engine.connectors import get_connector

HYBRID = get_connector("hybrid")
LINES = [line for line in lines() if line.program != "faultlab"]
COMMANDS = list(dict.fromkeys(map(command, LINES)))
IN_TEXT = [line for line in dict.fromkeys(inline()) if line.program != "faultlab"]
MAKEFILE = (ROOT / "Makefile").read_text()


class Parsed(Exception):
    """A parser has taken its arguments."""


def test_every_line_is_in_one_table() -> None:
    """And every entry is on some page."""
    found = {line.text: keys(line) for line in LINES}
    remedy = "give the line its place in tests/tidy/doc_shell.py, or fence what is no command"
    assert {text: of for text, of in found.items() if len(of) != 1} == {}, remedy
    used = {key for of in found.values() for key in of}
    assert {*QUICK, *SOAK, *ELSEWHERE, *NEEDS} - used == set(), "no page has these any more"
    assert len(LINES) >= 40


def test_a_block_says_whether_it_is_for_a_shell() -> None:
    """A fence without a language would hide commands from these tests."""
    known = {"sh", "bash", "console", "text", "yaml", "python", "markdown"}
    fences = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)
    found = {
        (page.name, language) for page in PAGES for language in fences.findall(page.read_text())
    }
    assert [each for each in sorted(found) if each[1] not in known] == []


def test_what_runs_a_line_exists() -> None:
    """A test, its file, or a target that CI or a person calls."""
    named = [*ELSEWHERE.values(), *(needs.instead for needs in NEEDS.values()), *TARGETS.values()]
    for name in named:
        file, _, test = name.partition("::")
        if name.startswith("make "):
            assert name.removeprefix("make ") in TARGETS
        elif not file.startswith("a person"):
            assert (ROOT / file).is_file(), name
            assert not test or f"def {test}(" in (ROOT / file).read_text(), name


def test_nothing_needs_hardware_that_could_be_run() -> None:
    """Whatever is left out is for GPUs, other machines, docker, or engines that serve a model."""
    for key, needs in NEEDS.items():
        if needs.what == "GPU":
            assert "rocm" in key or key in (
                "vllm serve ...",
                "python -m hw_tests.cluster --suite first",
            )
        if needs.what == "hosts":
            assert " --way " in key
    assert len(NEEDS) <= 15, "a line that nobody has run is a promise; run it, or review this"


def test_pages_with_lines_that_nobody_has_run_say_so() -> None:
    """In the words that the project has for it."""
    pages = {line.page for line in LINES if any(key in NEEDS for key in keys(line))}
    silent = [name for name in sorted(pages) if not said_unverified(name)]
    assert silent == [], "say there what is unverified on hardware"


def said_unverified(name: str) -> bool:
    (page,) = (page for page in PAGES if page.name == name)
    return "unverified on hardware" in " ".join(page.read_text().lower().split())


def targets() -> Iterator[str]:
    """Of ``make``, in blocks and in running text."""
    for line in [*LINES, *IN_TEXT]:
        if line.program == "make":
            yield next(word for word in line.arguments if "=" not in word)


def test_every_target_exists_and_is_run() -> None:
    """Those that documents name, and all others."""
    real = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert real == set(TARGETS)
    assert set(targets()) <= real
    assert len(set(targets())) >= 10


def modules() -> list[list[str]]:
    """Modules that are run with ``python -m``, with their arguments."""
    found = [
        line.arguments[1:]
        for line in [*LINES, *IN_TEXT]
        if line.program == "python" and line.arguments[0] == "-m"
    ]
    return [words for words in found if words[0] != "pytest"]


@pytest.mark.parametrize("words", modules(), ids=" ".join)
def test_a_module_takes_its_arguments(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it would need to go on."""
    whole = argparse.ArgumentParser.parse_args

    def parse_args(parser: Any, arguments: Sequence[str] | None = None) -> None:
        whole(parser, arguments)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    main = importlib.import_module(f"{words[0]}.__main__").main
    with pytest.raises((Parsed, SystemExit)) as ended:
        main(words[1:])
    assert ended.type is Parsed or ended.value.code == 0  # after --help


def pytest_lines() -> list[Line]:
    """Lines that run tests of this tree; what a how-to page adds is not in it."""
    return [
        line
        for line in [*LINES, *IN_TEXT]
        if line.program == "pytest" or line.arguments[:2] == ["-m", "pytest"]
        if "test_long_commands" not in ELSEWHERE.get(command(line), "")
        if line.text != "pytest my.scenario.yaml"
        if not line.text.endswith(("-k NAME", "-k small-gqa"))
    ]


@pytest.mark.parametrize("line", pytest_lines(), ids=lambda line: line.text)
def test_a_line_of_pytest_selects_a_test(line: Line) -> None:
    """That is there, has the mark and the words that it asks for, and is run by the target."""
    words = line.arguments[2:] if line.program == "python" else line.arguments
    parser = argparse.ArgumentParser()
    for option in ("-k", "-m", "--arm", "-n"):
        parser.add_argument(option)
    parser.add_argument("paths", nargs="+")
    asked, flags = parser.parse_known_args(words)
    assert set(flags) <= {"-q", "-s", "-x"}
    paths = [ROOT / path for path in asked.paths]
    assert all(path.exists() for path in paths)
    assert any(
        is_wanted(asked.k, file, name)
        for path in paths
        for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])
        for name in functions(file, soak=asked.m == "soak")
    )
    target = ELSEWHERE.get(command(line), "")
    assert target != ("make test" if asked.m == "soak" else "make soak")


def is_wanted(words: str | None, file: Path, name: str) -> bool:
    """Whether ``-k`` selects a test, by the names that pytest compares; all without ``-k``."""
    parts = (*file.relative_to(ROOT).parts, name)
    matches = Expression.compile(words or "not nothing").evaluate
    return matches(lambda word, /, **_: any(word in part for part in parts))


def functions(file: Path, *, soak: bool) -> list[str]:
    """The functions of a file that are tests, or soak tests."""
    text = file.read_text()
    whole = "pytestmark = pytest.mark.soak" in text
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return [
        node.name
        for node in found
        if node.name.startswith("test_")
        if soak == (whole or any("soak" in ast.unparse(each) for each in node.decorator_list))
    ]


def test_engines_are_given_what_the_connector_accepts() -> None:
    """The settings in the lines that start vLLM, one of each role on each page."""
    roles = []
    for line in (line for line in LINES if line.program == "vllm"):
        words = line.arguments
        json.loads(words[words.index("--speculative-config") + 1])
        given = json.loads(words[words.index("--kv-transfer-config") + 1])
        parse_settings(given["kv_connector_extra_config"], role=given["kv_role"])
        assert given["kv_connector_module_path"] == HYBRID.module
        assert given["kv_connector"] == HYBRID.class_name
        roles.append((line.page, given["kv_role"]))
    pages = ("connector.md", "hardware.md")
    assert roles == [(page, role) for page in pages for role in ("kv_producer", "kv_consumer")]


def test_packages_are_installed_as_setup_does() -> None:
    """scripts/setup.sh, which is compared with these lines in test_tidy_setup.py."""
    assert [line for line in COMMANDS if line.startswith("pip ")] == list(INSTALL_LINES)
