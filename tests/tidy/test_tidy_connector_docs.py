"""docs/connector.md against the connector's sources: errors and settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from source_tree import ROOT, python_files

from connector.core.keys import KNOWN_KEYS

TEXT = (ROOT / "docs" / "connector.md").read_text()
EXPLAINED = ("ConfigError", "UnsupportedModel", "PeerMismatch", "TransportError", "LoadFailed",
             "OSError")  # fmt: skip


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(table: str) -> list[str]:
    """The words in code quotes of the first column."""
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def sources() -> Iterator[ast.AST]:
    for path in python_files("connector"):
        yield from ast.walk(ast.parse(path.read_text()))


def template(node: ast.AST) -> str:
    """A message with everything that is not fixed replaced by an ellipsis."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    return "…"


def calls(node: ast.AST) -> str:
    """What a call calls, without what it is called on."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_every_error_of_start_up_and_handshake_has_a_remedy() -> None:
    """In the words in which it is raised; and no remedy is for an error that there is not."""
    raised = {
        template(node.exc.args[0])
        for node in sources()
        if isinstance(node, ast.Raise) and node.exc is not None and calls(node.exc) in EXPLAINED
        if isinstance(node.exc, ast.Call)
    }
    assert sorted(first_cells(section("Errors"))) == sorted(raised)


def test_every_setting_has_a_row() -> None:
    """Upstream's and our own."""
    assert sorted(first_cells(section("Settings"))) == sorted(KNOWN_KEYS)
