"""What one file each adds to a list: kinds of fault, oracles, model presets and their like.

Files come from whoever extends faultlab, so a mistake in one is told as theirs, with its place.
"""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TypeVar

from sim.errors import UsageError

_T = TypeVar("_T")


def load(name: str) -> ModuleType:
    """The module ``name``; UsageError, with file and line, if its file cannot be imported."""
    try:
        return importlib.import_module(name)
    except SyntaxError as error:
        place, said = f"{error.filename}:{error.lineno}", error.msg
        raise UsageError(_unreadable(place, said)) from error
    except Exception as error:
        spec = importlib.util.find_spec(name)
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if spec and frame.filename == spec.origin
        ]
        if spec is None or not lines:
            raise
        place, said = f"{spec.origin}:{lines[-1]}", f"{type(error).__name__}: {error}"
        raise UsageError(_unreadable(place, said)) from error


def by_name(
    what: str, items: Iterable[_T], name: Callable[[_T], str], place: Callable[[_T], str]
) -> dict[str, _T]:
    """``items`` in their order; UsageError, with both places, if two have one name."""
    found: dict[str, _T] = {}
    for item in items:
        other = found.setdefault(name(item), item)
        if other is not item:
            raise UsageError(
                f"two of the {what} are called {name(item)!r}: {place(other)} and {place(item)}; "
                "give one of them another name"
            )
    return found


def place_of(kind: type) -> str:
    """The file of a class, and its name."""
    return f"{kind.__module__.replace('.', '/')}.py ({kind.__qualname__})"


def _unreadable(place: str, said: str) -> str:
    return f"{place}: {said}; mend this file, or take it out of its directory"
