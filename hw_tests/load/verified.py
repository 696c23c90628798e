"""Whether a command that serves has the connector compare every byte that it reads."""

from __future__ import annotations

import re
from typing import Final

WANTED: Final = '"verify_reads": "all"'
_SETS = re.compile(r"verify_reads\W+all\b")


def verifies(command: str) -> bool:
    """As JSON in a shell's quotes, or however else it is written."""
    return _SETS.search(command) is not None
