"""The kinds of fault, one file each; a file that is here is found, and nothing lists it.

A kind is a subclass of ``Fault`` with a tag of its own. Its fields are its parameters, with their
defaults; the first line of its docstring is its description.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import Any

from faults.fault import Fault
from sim.errors import UsageError
from sim.extensions import by_name, load, place_of


def _kinds_below(base: type[Fault]) -> Iterator[type[Fault]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith(__name__):
            yield kind
        yield from _kinds_below(kind)


def _collected(found: Iterable[type[Fault]]) -> dict[str, type[Fault]]:
    """By name, in alphabetical order; UsageError if two have one, or one has no description."""
    kinds = sorted(found, key=lambda kind: kind.kind())
    for kind in kinds:
        if not kind.summary():
            raise UsageError(
                f"{place_of(kind)}: the kind of fault {kind.kind()!r} has no docstring; give it "
                "one, whose first line is what lists say of it"
            )
    return by_name("kinds of fault", kinds, lambda kind: kind.kind(), place_of)


for _module in pkgutil.iter_modules(__path__):
    load(f"{__name__}.{_module.name}")

KINDS = _collected(_kinds_below(Fault))

ANY_KIND: Any = reduce(or_, KINDS.values())
"""The union of all kinds, for decoding."""
