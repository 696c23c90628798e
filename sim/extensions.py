"""What one file each adds to a list: kinds of fault, oracles, model presets and their like.

Files come from whoever extends faultlab, so a mistake in one is told as theirs, with its place.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeVar

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
        if spec is None:
            raise UsageError(
                f"{name.replace('.', '/')}.py: there is no such file; put it there, or take its "
                "name out of the list"
            ) from error
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == spec.origin
        ]
        if not lines:
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


def own_methods(kind: type, base: type) -> Iterator[FunctionType]:
    """The methods that ``kind`` does not have from ``base``; what it overrides is among them."""
    for owner in kind.__mro__[: kind.__mro__.index(base)]:
        yield from filter(inspect.isfunction, vars(owner).values())


def line_of(method: FunctionType) -> str:
    """File, line, and the class that has it."""
    code = method.__code__
    return f"{code.co_filename}:{code.co_firstlineno} ({method.__qualname__})"


def require_signatures(kind: type, base: type) -> None:
    """UsageError, with file and line, if ``kind`` overrides what ``base`` has by something that
    cannot be called in the same way: arguments by position, but those that have to be named."""
    for method in own_methods(kind, base):
        overridden = getattr(base, method.__name__, None)
        if not inspect.isfunction(overridden):
            continue
        named: dict[str, Any] = {}
        placed: list[Any] = []
        for parameter in inspect.signature(overridden).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = None
            elif parameter.kind is not parameter.VAR_KEYWORD:
                placed.append(None)
        try:
            inspect.signature(method).bind(*placed, **named)
        except TypeError as error:
            raise UsageError(
                f"{line_of(method)}: takes {parameters_of(method)}, and is called with "
                f"{parameters_of(overridden)}: {error}; give it those parameters"
            ) from None


def parameters_of(method: FunctionType) -> str:
    """Without annotations, which are not what a call looks at."""
    signature = inspect.signature(method)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _unreadable(place: str, said: str) -> str:
    return f"{place}: {said}; mend this file, or take it out of its directory"
