"""Where two scenarios differ, key by key, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from faults.schedule import as_typed

_LONGEST = 120
_FAULTS = "faults"
_MISSING = object()


def differing(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """A line for each key of the two that differs, dotted, or numbered in a list of mappings."""
    for key in dict.fromkeys([*one, *other]):
        yield from _apart(
            f"{path}.{key}" if path else key, one.get(key, _MISSING), other.get(key, _MISSING)
        )


def line(key: str, one: str | None, other: str | None) -> str:
    """What ``key`` is in the one and in the other, shortened; None where it is not."""
    return f"{key}: {_short(one)} and {_short(other)}"


def _apart(path: str, one: Any, other: Any) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        yield from differing(one, other, path)
    elif _has_mappings(one) or _has_mappings(other):
        pairs = zip_longest(*map(_entries, (one, other)), fillvalue=_MISSING)
        for number, pair in enumerate(pairs):
            yield from _entries_apart(path, number, *pair)
    else:
        yield line(path, _shown(one), _shown(other))


def _entries_apart(path: str, number: int, one: Any, other: Any) -> Iterator[str]:
    """Entries of a list; faults of two kinds have nothing in common, and are told whole."""
    place = f"{path}[{number}]"
    if path != _FAULTS or _kind(one) == _kind(other):
        yield from _apart(place, one, other)
        return
    yield line(place, *(None if each is _MISSING else as_typed(each) for each in (one, other)))


def _kind(entry: Any) -> Any:
    return entry["kind"] if isinstance(entry, Mapping) else None


def _has_mappings(value: Any) -> bool:
    return any(isinstance(entry, Mapping) for entry in _entries(value))


def _entries(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _shown(value: Any) -> str | None:
    return None if value is _MISSING else msgspec.json.encode(value).decode()


def _short(text: str | None) -> str:
    return "none" if text is None else text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
