"""Finds the files that the tidy rules are about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("sim", "connector", "faults", "hw_tests")
_TOP = ("stubs", "tests", "docs", "examples", "bench", "scripts", "requirements", ".ci")
_FOLDERS = (*PACKAGES, *_TOP)
_GENERATED = {"__pycache__", ".hypothesis"}


def python_files(*folders: str) -> list[Path]:
    """Return the Python files under ``folders`` (default: packages and tests), sorted."""
    return [path for path in _walk(folders or (*PACKAGES, "tests")) if path.suffix == ".py"]


def text_files() -> list[Path]:
    """Return every file of the project that a person wrote."""
    top = sorted(path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")
    return [*top, *_walk(_FOLDERS)]


def name(path: Path) -> str:
    """Return ``path`` as the project writes it, relative and with forward slashes."""
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of ``path``."""
    return ast.parse(path.read_text(), filename=str(path))


def _walk(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and not _GENERATED.intersection(path.parts):
                yield path
