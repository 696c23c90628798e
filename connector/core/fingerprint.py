"""What must be equal on both sides for bytes to mean the same: exchanged in the handshake."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from connector.core.errors import PeerMismatch

PROTOCOL_VERSION = 3
Fingerprint = dict[str, Any]
"""Plain values (numbers, texts, lists, dicts of them) by the name of what they describe."""

_MAX_LISTED = 8
_MAX_TEXT = 120


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Every field that differs, each with both values; fields that only one side has included."""
    found: list[str] = []
    _compare("", ours, theirs, found)
    return found


def check_same(peer: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Refuse a peer whose caches are not like ours.

    Raises:
        PeerMismatch: naming the fields with both values.
    """
    found = differences(ours, theirs)
    if found:
        listed = "; ".join(found[:_MAX_LISTED])
        more = f"; and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
        raise PeerMismatch(f"{peer} has other caches than this engine: {listed}{more}")


def known_of_upstream(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Fingerprint:
    """Our fingerprint, reduced to what an upstream peer's handshake tells as well."""
    return {field: ours[field] for field in theirs if field in ours}


def _compare(path: str, ours: Any, theirs: Any, found: list[str]) -> None:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*ours, *theirs}, key=str):
            inner = f"{path}.{key}" if path else str(key)
            _compare(inner, ours.get(key), theirs.get(key), found)
        return
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if list(ours) != list(theirs):
            _compare_lists(path, list(ours), list(theirs), found)
        return
    same = ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)
    if not same and not (_is_nan(ours) and _is_nan(theirs)):
        found.append(f"{path} is {_short(ours)} here and {_short(theirs)} there")


def _compare_lists(path: str, ours: list[Any], theirs: list[Any], found: list[str]) -> None:
    if len(ours) != len(theirs):
        found.append(f"{path} has {len(ours)} entries here and {len(theirs)} there")
        return
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        _compare(f"{path}[{index}]", mine, other, found)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _short(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
