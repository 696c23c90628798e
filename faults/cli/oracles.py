"""``faultlab oracles``: the rules that every run is judged by, with their parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from faults.cli.outcome import JsonFlag, Outcome
from faults.cli.tables import print_table
from sim.oracles import ORACLES, default_parameters


def command(json: JsonFlag = False) -> Outcome:
    """List the rules that are watched in every run, whatever goes wrong in it.

    \b
    Examples:
      faultlab oracles
      faultlab oracles --json
    """
    oracles = described()
    return Outcome({"oracles": oracles}, partial(_render, oracles))


def described() -> list[dict[str, Any]]:
    """Every rule, with what can be set of it."""
    return [
        {"name": name, "summary": oracle.summary, "parameters": default_parameters(name)}
        for name, oracle in ORACLES.items()
    ]


def _render(oracles: list[dict[str, Any]], console: Console) -> None:
    table = Table("oracle", "rule", "parameters and defaults")
    for oracle in oracles:
        parameters = "\n".join(f"{key} = {value}" for key, value in oracle["parameters"].items())
        table.add_row(oracle["name"], oracle["summary"], parameters)
    print_table(console, table)
