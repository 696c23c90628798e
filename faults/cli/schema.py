"""``faultlab schema``: what a scenario file may hold, for editors and other tools."""

from __future__ import annotations

import json as json_text
from functools import partial
from typing import Any

import msgspec
from rich.console import Console

from faults.cli.outcome import JsonFlag, Outcome
from sim.scenario import Scenario

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def command(json: JsonFlag = False) -> Outcome:
    """Print the JSON Schema of scenario files.

    Editors that know YAML complete and check keys with it, when the first line of a scenario is
    `# yaml-language-server: $schema=scenario.schema.json`. What depends on several keys at once is
    checked by faultlab run only.

    \b
    Examples:
      faultlab schema > scenario.schema.json
    """
    document = schema()
    return Outcome(document, partial(_render, document))


def schema() -> dict[str, Any]:
    """The JSON Schema of scenario files."""
    return {"$schema": _DIALECT, "title": "faultlab scenario", **msgspec.json.schema(Scenario)}


def _render(document: dict[str, Any], console: Console) -> None:
    text = json_text.dumps(document, indent=2, ensure_ascii=False)
    console.print(text, soft_wrap=True, markup=False, highlight=False)
