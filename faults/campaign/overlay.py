"""An overlay that travels with a job, because its worker may be on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from faults.campaign.swarm import SwarmOptions


def write_overlay(directory: Path, files: Mapping[str, str]) -> None:
    """Make ``directory`` an overlay of ``files``, which are texts by their paths in it."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def with_overlay(options: SwarmOptions, directory: Path) -> SwarmOptions:
    """The options of seeds that load guests from ``directory`` first."""
    overlay = msgspec.json.encode(str(directory)).decode()
    return msgspec.structs.replace(options, settings={**options.settings, "overlay": overlay})
