"""The kinds of fault, one file each; a file that is here is found, and nothing lists it.

A kind is a subclass of ``Fault`` with a tag of its own. Its fields are its parameters, with their
defaults; the first line of its docstring is its description.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

from faults.fault import Fault


def _kinds_below(base: type[Fault]) -> Iterator[type[Fault]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith(__name__):
            yield kind
        yield from _kinds_below(kind)


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

KINDS: dict[str, type[Fault]] = {
    kind.kind(): kind for kind in sorted(_kinds_below(Fault), key=lambda kind: kind.kind())
}
"""By name, in alphabetical order."""

ANY_KIND: Any = reduce(or_, KINDS.values())
"""The union of all kinds, for decoding."""
