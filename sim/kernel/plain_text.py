"""Text for the record of a run, without what differs between runs or between machines."""

from __future__ import annotations

import re

GUEST_ROOT = "guest"
"""Copies of guest modules are called ``guest.<process>.<original name>``."""
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_GUEST_PREFIX = re.compile(rf"\b{GUEST_ROOT}\.\w+\.(?=\w)")


def plain(text: str) -> str:
    """``text`` with memory addresses blanked, as they are in the ``repr`` of many objects, and
    guest modules under their own names."""
    return _GUEST_PREFIX.sub("", _ADDRESS.sub("0x…", text))
