"""A simulated process together with its copies of the guest modules."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sim.guest.imports import GuestImporter
from sim.kernel import Process


class GuestProcess:
    """What runs inside one simulated process."""

    def __init__(self, process: Process, importer: GuestImporter) -> None:
        self.process = process
        self.importer = importer
        self.unpickled: dict[tuple[str, str], Any] = {}
        """What messages to this process have named, by module and name: looked up once."""
        process.resources["guest"] = self

    def load(self, name: str) -> ModuleType:
        """This process's copy of a guest module."""
        return self.importer.load(name)

    def alias(self, name: str) -> str:
        """The importable name of this process's copy; the shared one's if it is no guest."""
        return self.importer.alias(name) if self.importer.is_guest(name) else name
