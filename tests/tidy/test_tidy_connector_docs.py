"""docs/connector.md against the connector's sources: errors, causes and settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from source_tree import ROOT, python_files

from connector.core.keys import KNOWN_KEYS
from connector.core.load import Cause

TEXT = (ROOT / "docs" / "connector.md").read_text()
READS_SETTINGS = "config.py"  # its ValueErrors are the ends of `… is …; expected …`


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(table: str) -> list[str]:
    """The words in code quotes of the first column."""
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def sources() -> Iterator[tuple[str, ast.AST]]:
    """Every node, with the name of its file."""
    for path in python_files("connector"):
        for node in ast.walk(ast.parse(path.read_text())):
            yield path.name, node


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


def refusals() -> set[str]:
    """What a load or an engine is refused with: `ConnectorError`, all that derives from it, and
    what is raised as Python's own."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for _, node in sources()
        if isinstance(node, ast.ClassDef)
    }
    found = {"ConnectorError", "OSError", "ValueError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def test_every_refusal_has_a_remedy() -> None:
    """In the words in which it is raised; and no remedy is for an error that there is not."""
    explained = refusals()
    raised = {
        template(node.exc.args[0])
        for file, node in sources()
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if (error := calls(node.exc)) in explained
        if (file, error) != (READS_SETTINGS, "ValueError")
    }
    assert sorted(first_cells(section("Errors"))) == sorted(raised)


def test_every_cause_of_a_failed_load_has_a_meaning_and_a_remedy() -> None:
    """And has them once."""
    rows = [line.strip("| ").split(" | ") for line in section("Metrics").splitlines()]
    remedies = {row[0].strip("`"): row[1:] for row in rows if row[0].strip("`") in [*Cause]}
    assert sorted(remedies) == sorted(Cause)
    assert all(len(cells) == 2 and all(cells) for cells in remedies.values())


def test_every_setting_has_a_row() -> None:
    """Upstream's and our own."""
    assert sorted(first_cells(section("Settings"))) == sorted(KNOWN_KEYS)
