"""docs/hardware.md names each test between two engines, with what it proves and needs."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

import pytest
from source_tree import ROOT, parse

PAGE = (ROOT / "docs/hardware.md").read_text()
FILES = sorted((ROOT / "hw_tests/process").glob("test_process_*.py"))
OF_THE_HARNESS = {"no_model_is_left_out"}
"""Beside those of the launcher: what they prove is about the tests."""
_TABLE = re.compile(r"^\| test in `test_process_….*?\n\n", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)`: `(\w+)…?`([^|]*) \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$")


@dataclass(frozen=True)
class Row:
    """Of the table: a file's last word, how a test's name begins, and what is said of it."""

    file: str
    begins: str
    notes: str
    requirements: frozenset[str]
    fault: str


@dataclass(frozen=True)
class Proof:
    """A test, with the arguments of its mark and the words of its other decorators."""

    file: str
    name: str
    requirements: frozenset[str]
    decorators: str


def rows() -> list[Row]:
    table = _TABLE.search(PAGE)
    assert table
    lines = table[0].strip().splitlines()[2:]
    found = [_ROW.fullmatch(line) for line in lines]
    assert None not in found, [line for line, row in zip(lines, found, strict=True) if not row]
    return [Row(m[1], m[2], m[3], frozenset(m[4].split(", ")), m[5]) for m in found if m]


def proofs() -> list[Proof]:
    """All but those of the launcher."""
    return [
        Proof(file.stem.removeprefix("test_process_"), *_read(node))
        for file in FILES
        if file.stem != "test_process_launcher"
        for node in parse(file).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def _read(node: ast.FunctionDef) -> tuple[str, frozenset[str], str]:
    names: set[str] = set()
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.requirement":
            names |= {ast.literal_eval(name) for name in mark.args}
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return node.name.removeprefix("test_"), frozenset(names), decorators


def rows_of(proof: Proof) -> list[Row]:
    return [r for r in rows() if r.file == proof.file and proof.name.startswith(r.begins)]


@pytest.mark.parametrize("proof", proofs(), ids=lambda proof: proof.name)
def test_a_test_between_engines_has_one_row_that_says_what_it_proves(proof: Proof) -> None:
    """The requirements of its mark, a fault or none, whether it runs in ``make soak`` only, keeps
    reads under way, and runs with both ways to load."""
    if proof.name in OF_THE_HARNESS:
        assert not proof.requirements
        return
    (row,) = rows_of(proof)
    assert proof.requirements == row.requirements
    assert ("EACH_MODE" in proof.decorators) == ("both modes" in row.notes)
    assert ("held_reads" in proof.decorators) == ("held-reads" in row.notes)
    if "pytest.mark.soak" in proof.decorators and "parametrize" not in proof.decorators:
        assert "make soak" in row.notes


def test_every_row_is_of_one_test() -> None:
    """A row without a test would promise something."""
    named = [row for proof in proofs() for row in rows_of(proof)]
    assert sorted(map(str, named)) == sorted(map(str, rows()))


@pytest.mark.parametrize("page", ["hardware.md", "load.md", "calibration.md", "connector.md"])
def test_a_page_about_hardware_says_that_none_was_there(page: str) -> None:
    assert "unverified on hardware" in (ROOT / "docs" / page).read_text().lower()


def test_every_run_time_says_whether_it_was_measured() -> None:
    """And every suite of the launcher has one."""
    table = PAGE.partition("| step | seconds | |\n|---|---|---|\n")[2].partition("\n\n")[0]
    lines = table.splitlines()
    assert len(lines) > 8
    for line in lines:
        assert re.search(r"\| (estimated|measured)\b[^|]*\|$", line), line
        assert not ("rocm" in line and "measured" in line.rpartition("| ")[2]), line
    for suite in ("first", "pair", "geometry", "all", "load", "recall"):
        assert f"--suite {suite}" in table, suite
