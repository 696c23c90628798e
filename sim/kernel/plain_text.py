"""Text for the record of a run, without what differs between runs or between machines."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_PACKAGES = "/site-packages/"


def without_addresses(text: str) -> str:
    """Memory addresses blanked, as they are in the ``repr`` of many objects."""
    return _ADDRESS.sub("0x…", text)


def short_path(path: str) -> str:
    """The path of an installed file from its package on, wherever that is installed."""
    return path.rpartition(_PACKAGES)[2]
