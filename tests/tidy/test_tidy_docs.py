from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec import inspect
from source_tree import ROOT, name

from faults.cli import dispatch
from sim.fabric import FabricProfile
from sim.model.speculation import Speculation
from sim.router.options import Retry
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    Scenario,
    TraceWorkload,
    UniformWorkload,
)

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "sim/DIVERGENCE.md"])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_ON_SITE = re.compile(r"<!-- site: .*? -->", re.DOTALL)  # whose build checks the links in it
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| `([\w.]+)` \| (.*?) \| ", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The fragments under which GitHub shows the headings of ``page``."""
    titles = _HEADING.findall(page.read_text())
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.strip().replace(" ", "-") for title in plain}


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in _LINK.findall(_ON_SITE.sub("", page.read_text())):
            yield page, target


def test_links_between_documents_lead_somewhere() -> None:
    """To a file that is there, and to a heading in it."""
    broken = []
    for page, target in links():
        path, _, fragment = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (fragment and fragment not in anchors(file)):
            broken.append(f"{name(page)}: {target}")
    assert broken == []


def test_the_readme_has_every_exit_code_that_help_has(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts are written by the one or the other."""
    dispatch.run(["--help"])
    _, _, rest = capsys.readouterr().out.partition("Exit codes: ")
    told = re.findall(r"\b\d+\b", rest.partition("To begin with")[0])
    rows = re.findall(r"^\| (\d+(?:, \d+)*) \| ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(", ".join(rows).split(", ")) == sorted(told)


def tables(page: str) -> list[dict[str, object]]:
    """By section, the keys and defaults in the tables of a page."""
    sections = re.split(r"^(?:## |`kind: |\*\*)", (ROOT / page).read_text(), flags=re.MULTILINE)
    found = [
        {key: text if text == "required" else yaml.safe_load(text.strip("`") or "null")
         for key, text in _ROW.findall(section)}
        for section in sections
    ]  # fmt: skip
    return [table for table in found if table]


def defaults(struct: type[msgspec.Struct], prefix: str = "") -> dict[str, object]:
    """All keys of ``struct``, dotted, with their defaults as YAML shows them."""
    result: dict[str, object] = {}
    node = inspect.type_info(struct)
    assert isinstance(node, inspect.StructType)
    for field in node.fields:
        key = prefix + field.encode_name
        if isinstance(field.type, inspect.StructType):
            result |= defaults(field.type.cls, f"{key}.")
        elif field.required:
            result[key] = "required"
        else:
            default = field.default_factory() if field.default is msgspec.NODEFAULT else (
                field.default
            )  # fmt: skip
            plain = msgspec.to_builtins(default)
            result[key] = list(plain) if isinstance(plain, tuple) else plain
    return result


@pytest.mark.parametrize(
    "struct",
    [GeneratedWorkload, TraceWorkload, UniformWorkload, InlineRequest, Retry, Speculation],
)
def test_every_key_of_a_part_of_a_scenario_is_documented(struct: type[msgspec.Struct]) -> None:
    """With the default that the code has."""
    assert defaults(struct) in tables("docs/scenarios.md")


def test_every_key_of_a_fabric_is_documented() -> None:
    """With the default that the code has."""
    assert defaults(FabricProfile) in tables("docs/fabrics.md")


def test_every_key_of_a_scenario_is_documented() -> None:
    """With the default that the code has; workloads have tables of their own."""
    expected = {k: v for k, v in defaults(Scenario).items() if k != "workload"}
    assert expected in tables("docs/scenarios.md")
