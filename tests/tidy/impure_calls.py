"""Finds the uses of wall clock, global randomness and object identity in a syntax tree.

It sees names as they are imported, not what a variable holds, so it finds the honest mistake
and not the determined one. The determinism tests find what it cannot.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_CLOCKS = {
    f"time.{name}{suffix}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for suffix in ("", "_ns")
}
IMPURE = {
    *_CLOCKS,
    "time.sleep",
    "time.localtime",
    "time.gmtime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "torch.rand",
    "torch.randn",
    "torch.randint",
    "torch.randperm",
    "torch.manual_seed",
}
IMPURE_MODULES = ("random.", "numpy.random.", "secrets.")
# Naming the type of a stream is pure; only constructing one chooses a seed.
PURE_UNLESS_CALLED = {"random.Random", "numpy.random.Generator"}
IDENTITY = {"id", "hash"}


@dataclass(frozen=True)
class Use:
    """One finding: the full name of what is used, and where."""

    name: str
    line: int


def impure_uses(tree: ast.Module) -> list[Use]:
    """Return every use of an impure name, called or handed on (``default_factory=time.time``)."""
    imports = dict(_imported_names(tree))
    found = [*_impure_references(tree, imports), *_identity_uses(tree)]
    return sorted(found, key=lambda use: (use.line, use.name))


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _impure_references(tree: ast.Module, imports: dict[str, str]) -> Iterator[Use]:
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
            full = _full_name(node, imports)
            if full in PURE_UNLESS_CALLED and node not in called:
                continue
            if full in IMPURE or full.startswith(IMPURE_MODULES):
                yield Use(full, node.lineno)


def _full_name(node: ast.expr, imports: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return imports.get(node.id, "")
    if isinstance(node, ast.Attribute) and (base := _full_name(node.value, imports)):
        return f"{base}.{node.attr}"
    return ""


def _identity_uses(tree: ast.Module) -> Iterator[Use]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        for used in (node.func, *(word.value for word in node.keywords if word.arg == "key")):
            if isinstance(used, ast.Name) and used.id in IDENTITY:
                yield Use(used.id, node.lineno)
