"""The rows of docs/requirements.md, and the tests that name each requirement.

A test names requirements by ``@pytest.mark.requirement("R1", ...)``. Run as a program (``make
requirements``) this writes the tests into the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from source_tree import ROOT, parse, python_files

PAGE = ROOT / "docs" / "requirements.md"
_ROW = re.compile(r"^\| ([RS]\d+) \| ([^|]*) \| ?([^|]*?) ?\| ([^|]*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """``upstream`` is how upstream's connector ends in the requirement's scenario."""

    name: str
    what: str
    tests: str
    upstream: str

    def __str__(self) -> str:
        return f"| {self.name} | {self.what} | {self.tests} | {self.upstream} |"


def rows(text: str) -> list[Row]:
    """In the order of the page."""
    return [Row(*found) for found in _ROW.findall(text)]


def tests_of(requirement: str) -> str:
    """The tests that name it, by file, as a cell of the table."""
    by_file: dict[str, list[str]] = {}
    for file, test, names in named_tests():
        if requirement in names:
            by_file.setdefault(file, []).append(test)
    cells = (
        f"{file}: {', '.join(f'`{test}`' for test in tests)}" for file, tests in by_file.items()
    )
    return "<br>".join(cells)


def named_tests() -> Iterator[tuple[str, str, list[str]]]:
    """Every test that names a requirement: its file below tests/, its name, and what it names."""
    for path in python_files("tests"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef):
                names = [name for mark in node.decorator_list for name in _names(mark)]
                if names:
                    yield path.relative_to(ROOT / "tests").as_posix(), node.name, names


def _names(mark: ast.expr) -> list[str]:
    is_mark = isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.requirement"
    return [ast.literal_eval(name) for name in mark.args] if is_mark else []  # type: ignore[attr-defined]


def up_to_date(text: str) -> str:
    """The page with the tests as they are now."""
    return _ROW.sub(lambda match: str(Row(match[1], match[2], tests_of(match[1]), match[4])), text)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text()))
