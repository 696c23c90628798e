"""``faultlab connectors``: the connectors known by name, with their settings."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from faults.cli.outcome import JsonFlag, Outcome
from faults.connector_settings import settings_of
from sim.engine.connectors import CONNECTORS

_ANY = "any other: --connector package.module:Class, with settings by --extra-config JSON"


def command(json: JsonFlag = False) -> Outcome:
    """List the connectors known by name; any other is given as package.module:Class.

    Settings are keys of kv_connector_extra_config. Ports and addresses are set by faultlab.

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
            "settings": [asdict(key) for key in settings_of(kind.name)],
        }
        for kind in CONNECTORS.values()
    ]
    return Outcome({"connectors": connectors}, partial(_render, connectors))


def _render(connectors: list[dict[str, Any]], console: Console) -> None:
    for kind in connectors:
        console.print(Text.assemble((kind["name"], "bold"), f": {kind['summary']}"))
        console.print(Padding(Text(kind["class"], "dim", overflow="fold"), (0, 0, 0, 2)))
        if kind["settings"]:
            console.print(Padding(_settings(kind), (0, 0, 0, 2)))
        console.print()
    console.print(_ANY, style="dim", highlight=False)


def _settings(kind: dict[str, Any]) -> Table:
    """Keys with defaults and units; three narrow columns, so that 80 characters are enough."""
    table = Table(
        "key", "default", "unit", "meaning", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in table.columns:
        column.overflow = "fold"
    for setting in kind["settings"]:
        name, default = setting["name"], setting["default"]
        given = kind["extra_config"].get(name, default)
        note = setting["note"] if given == default else f"given here, not {_shown(default)}"
        table.add_row(name, _shown(given), setting["unit"], note)
    return table


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
