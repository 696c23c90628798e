"""What ``dataclasses``, ``namedtuple`` and ``typing`` have as text is compiled once.

Every simulated process has its own copies of the guests' classes, whose texts are the same ones in
every process and run. The classes and their functions are still made anew; only the code objects,
which cannot be changed, are shared.
"""

from __future__ import annotations

import collections
import dataclasses
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType
from typing import Any

_PLACES = ((dataclasses, "exec"), (collections, "eval"), (typing, "compile"))


@contextmanager
def compiled_once() -> Iterator[None]:
    """For as long as guest modules are executed."""
    before = [vars(module).get(name) for module, name in _PLACES]
    vars(dataclasses)["exec"], vars(collections)["eval"] = _exec, _eval
    vars(typing)["compile"] = lambda text, _name, mode: _compiled(text, mode)
    try:
        yield
    finally:
        for (module, name), value in zip(_PLACES, before, strict=True):
            if value is None:
                del vars(module)[name]  # the built-in function is found again
            else:
                vars(module)[name] = value


@cache
def _compiled(text: str, mode: str) -> CodeType:
    code: CodeType = compile(text, "<string>", mode, dont_inherit=True)
    return code


def _exec(text: str, *namespaces: dict[str, Any]) -> None:
    exec(_compiled(text, "exec"), *namespaces)


def _eval(text: str, *namespaces: dict[str, Any]) -> Any:
    return eval(_compiled(text, "eval"), *namespaces)
