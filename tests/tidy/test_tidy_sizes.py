from __future__ import annotations

import ast

from source_tree import ROOT, name, parse, python_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_no_file_is_longer_than_500_lines() -> None:
    """A file holds one idea."""
    sizes = {name(path): len(path.read_text().splitlines()) for path in python_files()}
    assert {file: size for file, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    """Seventy lines, from ``def`` to the last statement."""
    found = {
        f"{name(path)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in python_files()
        for node in ast.walk(parse(path))
        if isinstance(node, FUNCTIONS) and node.end_lineno is not None
    }
    assert {where: size for where, size in found.items() if size > MAX_FUNCTION_LINES} == {}


def test_test_files_have_unique_names_and_no_packages() -> None:
    """pytest imports tests by base name; two of one name would hide each other."""
    seen: dict[str, str] = {}
    for path in python_files("tests"):
        assert path.name != "__init__.py", name(path)
        if path.name != "conftest.py":
            assert path.name not in seen, f"{name(path)} and {seen[path.name]}"
        seen[path.name] = name(path)


def test_every_module_of_the_packages_says_what_it_is_for() -> None:
    """A module starts with a docstring."""
    paths = [path for path in python_files() if path.parts[len(ROOT.parts)] != "tests"]
    assert [name(path) for path in paths if ast.get_docstring(parse(path)) is None] == []
