from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import faults
import sim
from faults.identity import INJECTING, run_digest

FAULTS, SIMULATOR = Path(faults.__file__).parent, Path(sim.__file__).parent
COUNTING = {"faults.cells", "faults.coverage", "faults.plural"}
"""Loaded by a run, and only told of it what to count."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one file in each place that matters, and some that do not."""
    files = [part if part.endswith(".py") else f"{part}mine.py" for part in INJECTING]
    for name in (*files, "story/voices.py", "cli/run.py"):
        path = tmp_path / "faults" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("before = 1\n")
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim/world.py").write_text("before = 1\n")
    return tmp_path


@pytest.mark.parametrize("name", ["faults/kinds/mine.py", "faults/nemesis.py", "sim/world.py"])
def test_what_can_change_a_run_changes_the_hash(package: Path, name: str) -> None:
    """Else a replay would blame the testbed for somebody's edit."""
    before = run_digest(package / "sim", package / "faults")
    (package / name).write_text("after = 1\n")
    assert run_digest(package / "sim", package / "faults") != before


def test_another_kind_of_fault_changes_the_hash(package: Path) -> None:
    """A file that was not there."""
    before = run_digest(package / "sim", package / "faults")
    (package / "faults/kinds/another.py").write_text("")
    assert run_digest(package / "sim", package / "faults") != before


@pytest.mark.parametrize("name", ["faults/story/voices.py", "faults/cli/run.py"])
def test_what_only_tells_of_a_run_does_not(package: Path, name: str) -> None:
    """Artifacts stay those of this version."""
    before = run_digest(package / "sim", package / "faults")
    (package / name).write_text("after = 1\n")
    assert run_digest(package / "sim", package / "faults") == before


def test_all_that_a_run_loads_of_this_package_is_hashed() -> None:
    """Followed from what runs a scenario, and from each kind of fault."""
    kinds = [f"faults.kinds.{path.stem}" for path in (FAULTS / "kinds").glob("*.py")]
    loaded = set(_loaded({"faults.running", *kinds} - {"faults.kinds.__init__"}))
    hashed = {f"faults.{part.removesuffix('.py').rstrip('/')}" for part in INJECTING}
    assert {".".join(name.split(".")[:2]) for name in loaded} - COUNTING == hashed


def _loaded(names: set[str]) -> Iterator[str]:
    seen: set[str] = set()
    while names:
        name = names.pop()
        seen.add(name)
        yield name
        names |= _imports(name) - seen


def _imports(name: str) -> set[str]:
    """The modules of this package that module ``name`` imports, wherever in it."""
    base = FAULTS.parent.joinpath(*name.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    tree = ast.walk(ast.parse(path.read_text()))
    found = {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}
    return {module for module in found if module.startswith("faults.")}
