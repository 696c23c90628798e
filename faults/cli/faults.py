"""``faultlab faults``: the kinds of fault that can be injected, with their parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Column, Table

from faults.cells import possible_phases
from faults.cli.outcome import JsonFlag, Outcome
from faults.cli.tables import print_table
from faults.fault import EVENTS, Fault, Target, Trigger, parameters
from faults.kinds import KINDS
from sim.lifecycle import PHASES

_WHEN = (
    "When, for every kind: at_s=SECONDS into the workload; then phase=PHASE of a request's life, "
    "or event=EVENT, nth=1 the first time; or during=PHASE, while some request is in it."
)


def command(json: JsonFlag = False) -> Outcome:
    """List the kinds of fault that a scenario or --fault can name.

    \b
    Examples:
      faultlab faults
      faultlab run --fault crash:node=p0,phase=read_posted,for_s=5
      faultlab run --fault message-dropped:port=61005 --fault router-hold:seconds=65,request=req-3
    """
    kinds = described()
    trigger, target = _defaults(Trigger()), _defaults(Target())
    document = {
        "faults": kinds,
        "when": trigger,
        "target": target,
        "phases": list(PHASES),
        "events": list(EVENTS),
    }
    return Outcome(document, partial(_render, kinds))


def described() -> list[dict[str, Any]]:
    """Every kind, with its parameters and where it can reach a request."""
    return [_entry(kind) for kind in KINDS.values()]


def _entry(kind: type[Fault]) -> dict[str, Any]:
    values = _defaults(kind())
    return {
        "name": kind.kind(),
        "summary": kind.summary(),
        "parameters": {name: values[name] for name in parameters(kind)},
        "target": list(kind.takes),
        "phases": list(possible_phases(kind.kind())),
    }


def _defaults(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain


def _render(kinds: list[dict[str, Any]], console: Console) -> None:
    table = Table(Column("kind", no_wrap=True), "what happens", "parameters and defaults", "target")
    for kind in kinds:
        values = "\n".join(f"{key} = {_shown(value)}" for key, value in kind["parameters"].items())
        summary = kind["summary"].replace("``", "")
        table.add_row(kind["name"], summary, values, ", ".join(kind["target"]))
    print_table(console, table)
    console.print(f"\n{_WHEN}", highlight=False)
    for title, names in (("phase", PHASES), ("event", EVENTS)):
        console.print(f"{title}: {', '.join(names)}.", highlight=False)


def _shown(value: Any) -> str:
    """As it is typed."""
    return msgspec.json.encode(value).decode()
