"""Names of requests: the client's, and those of the legs that the router makes of it.

A logical request becomes one request on a producer and one on a consumer, or a single one on a
colocated engine, and more of them when the router tries again.
"""

from __future__ import annotations

import re
from typing import Literal

LegKind = Literal["p", "d", "c"]
"""On a producer, on a consumer, colocated."""

_LEG = re.compile(r"(?P<logical>.+)-(?P<kind>[pdc])\d+")


def leg_id(logical: str, kind: LegKind, attempt: int) -> str:
    """The id under which an engine knows attempt number ``attempt`` of a logical request."""
    return f"{logical}-{kind}{attempt}"


def logical_id(leg: str) -> str:
    """The logical request that ``leg`` is part of; an id that is no leg's stands for itself."""
    match = _LEG.fullmatch(leg)
    return match["logical"] if match else leg


def leg_kind(leg: str) -> str | None:
    """Where ``leg`` runs, a LegKind, or None if the id is no leg's."""
    match = _LEG.fullmatch(leg)
    return match["kind"] if match else None
