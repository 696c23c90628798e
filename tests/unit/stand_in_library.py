"""Modules of the connector that need mori, over a stand-in for it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

from hw_tests.process import shared_mori


def connector_module(name: str) -> Iterator[ModuleType]:
    """``connector.<name>`` for as long as a fixture lasts; no other test sees what it loads."""
    before = set(sys.modules)
    shared_mori.install()
    yield importlib.import_module(f"connector.{name}")
    for loaded in set(sys.modules) - before:
        if loaded.partition(".")[0] in ("mori", "connector"):
            del sys.modules[loaded]
