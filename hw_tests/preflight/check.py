"""One check of a machine and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hw_tests.preflight.host import Host


class NotMet(Exception):
    """The machine does not have what is needed; the text says what was seen instead."""


@dataclass(frozen=True)
class Finding:
    """What a check saw.

    Args:
        name: of the check.
        ok: whether the machine has what is needed.
        found: what was seen.
        needed: what has to be there.
        remedy: how to get there; None if nothing is wrong.
    """

    name: str
    ok: bool
    found: str
    needed: str
    remedy: str | None

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "MISSING"
        fix = "" if self.remedy is None else f"\n    fix: {self.remedy}"
        return f"{verdict}: {self.name}: found {self.found}; needed {self.needed}{fix}"


@dataclass(frozen=True)
class Check:
    """Something that is looked at.

    Args:
        name: of the check.
        needed: what has to be there.
        remedy: how to get there.
        look: says what it saw; raises NotMet if that is not what is needed.
    """

    name: str
    needed: str
    remedy: str
    look: Callable[[Host], str]

    def examine(self, host: Host) -> Finding:
        """Never raises: what cannot be told has failed."""
        try:
            found = self.look(host)
        except NotMet as error:
            return Finding(self.name, False, str(error), self.needed, self.remedy)
        except Exception as error:
            found = f"it cannot be told ({type(error).__name__}: {error})"
            return Finding(self.name, False, found, self.needed, self.remedy)
        return Finding(self.name, True, found, self.needed, None)
