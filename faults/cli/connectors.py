"""``faultlab connectors``: the connectors known by name, with their settings."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from faults.cli.outcome import JsonFlag, Outcome
from faults.cli.tables import print_table
from sim.engine.connectors import CONNECTORS

_ANY = "any other: --connector package.module:Class, with settings by --extra-config JSON"


def command(json: JsonFlag = False) -> Outcome:
    """List the connectors known by name; any other is given as package.module:Class.

    \b
    Examples:
      faultlab connectors
      faultlab run --connector moriio --extra-config '{"defer_timeout": 5}'
      faultlab run --connector my_package.connector:MyConnector
    """
    connectors = [
        {
            "name": kind.name,
            "summary": kind.summary,
            "class": f"{kind.module}:{kind.class_name}",
            "extra_config": dict(kind.extra_config),
        }
        for kind in CONNECTORS.values()
    ]
    return Outcome({"connectors": connectors}, partial(_render, connectors))


def _render(connectors: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="connectors")
    table.add_column("connector", no_wrap=True)
    for heading in ("what", "class", "settings given to it"):
        table.add_column(heading, overflow="fold")
    for kind in connectors:
        settings = "\n".join(f"{key} = {value}" for key, value in kind["extra_config"].items())
        table.add_row(kind["name"], kind["summary"], kind["class"], settings)
    print_table(console, table)
    console.print(_ANY, style="dim")
