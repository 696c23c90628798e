"""Pages that are made from the code, so that they cannot be out of date."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from faults.cli import dispatch
from faults.cli.commands import COMMANDS
from faults.cli.faults import described as described_faults
from faults.cli.models import described as described_models
from faults.cli.oracles import described as described_oracles
from faults.cli.schema import schema
from sim.lifecycle import PHASES


def command_line() -> str:
    """Every command's own help."""
    sections = [f"# Command line\n\n```text\n{_help()}```"]
    sections += [f"## faultlab {c.name}\n\n```text\n{_help(c.name)}```" for c in COMMANDS]
    return "\n\n".join(sections)


def _help(*command: str) -> str:
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen):
        dispatch.run([*command, "--help"])
    return "\n".join(line.rstrip() for line in screen.getvalue().strip().splitlines()) + "\n"


def faults() -> str:
    """Kinds of fault with parameters, and the phases in which each can reach a request."""
    rows = [
        (
            f"`{kind['name']}`",
            _words(kind["summary"]),
            _values(kind["parameters"]),
            ", ".join(kind["target"]),
            _phases(kind["phases"]),
        )
        for kind in described_faults()
    ]
    heads = ("kind", "what happens", "parameters and defaults", "target", "phases it can reach")
    return (
        "# Kinds of fault\n\n[Faults](../faults.md) says how a scenario names them, when they "
        f"strike and whom.\n\n{_table(heads, rows)}"
    )


def oracles() -> str:
    """The rules, with parameters."""
    rows = [
        (f"`{oracle['name']}`", _words(oracle["summary"]), _values(oracle["parameters"]))
        for oracle in described_oracles()
    ]
    return (
        "# Oracles\n\nThe rules that every run is judged by. [Violations](../violations.md) says "
        f"how to read what they report.\n\n{_table(('oracle', 'rule', 'parameters'), rows)}"
    )


def models() -> str:
    """The presets, with the sizes of their caches."""
    rows = [
        (
            f"`{model['name']}`" if number == 0 else "",
            _words(model["summary"]) if number == 0 else "",
            name,
            *(f"{sizes[key]:g}" for key in ("layers", "kv_heads", "head_size")),
            str(sizes["tokens_per_block"]),
            f"{sizes['bytes_per_token']:g}",
        )
        for model in described_models()
        for number, (name, sizes) in enumerate(model["geometries"].items())
    ]
    heads = ("model", "what it is", "geometry", "layers", "KV heads", "head size",
             "tokens of a block", "bytes of a token")  # fmt: skip
    return f"# Models\n\nSizes are those of one rank at TP 1.\n\n{_table(heads, rows)}"


def schema_page() -> str:
    """The JSON Schema, as ``faultlab schema`` prints it."""
    text = json.dumps(schema(), indent=2)
    return (
        "# Schema of a scenario\n\n`faultlab schema` prints it, for editors. "
        f"[Scenarios](../scenarios.md) explains the keys.\n\n```json\n{text}\n```\n"
    )


def python() -> str:
    """The public interface, from its docstrings."""
    from faults import public  # noqa: PLC0415

    names = [getattr(public, name) for name in public.__all__ if name not in _ELSEWHERE]
    places = [f"faults.api.{name}" for name in ("run", "campaign", "load")]
    places += [f"{item.__module__}.{item.__qualname__}" for item in names]
    listed = "\n\n".join(f"::: {place}" for place in places)
    return (
        "# Python\n\nAll of this is imported from `faults`; [From Python](../library.md) has an "
        f"example.\n\n{listed}\n"
    )


_ELSEWHERE = ("Workload",)  # a union, without a page of its own

REFERENCE: Mapping[str, Callable[[], str]] = {
    "command-line": command_line,
    "python": python,
    "schema": schema_page,
    "faults": faults,
    "oracles": oracles,
    "models": models,
}


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _phases(names: list[str]) -> str:
    return "all" if names == list(PHASES) else ", ".join(f"`{name}`" for name in names) or "none"


def _words(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("\n", " ")


def _values(values: Mapping[str, Any]) -> str:
    return "<br>".join(f"`{key} = {json.dumps(value)}`" for key, value in values.items()) or "none"
