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
from faults.item_fault import ItemFault
from sim.errors import UsageError
from sim.extensions import by_name, load, own_methods, parameters_of, place_of, require_signatures
from sim.hints import closest


def _kinds_below(base: type[Fault]) -> Iterator[type[Fault]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith(__name__):
            yield kind
        yield from _kinds_below(kind)


def _collected(found: Iterable[type[Fault]]) -> dict[str, type[Fault]]:
    """By name, in alphabetical order; UsageError if two have one, or one has no description or
    does nothing."""
    kinds = sorted(found, key=lambda kind: kind.kind())
    for kind in kinds:
        if not kind.summary():
            raise UsageError(
                f"{place_of(kind)}: the kind of fault {kind.kind()!r} has no docstring; give it "
                "one, whose first line is what lists say of it"
            )
        _require_action(kind)
    return by_name("kinds of fault", kinds, lambda kind: kind.kind(), place_of)


def _require_action(kind: type[Fault]) -> None:
    """UsageError for a kind without the method that is called, or with other parameters."""
    base = ItemFault if issubclass(kind, ItemFault) else Fault
    actions = ("verdict", "strike") if base is ItemFault else ("strike",)
    if all(getattr(kind, action) is getattr(base, action) for action in actions):
        has = "neither verdict nor strike" if base is ItemFault else "no strike"
        meant = [
            f" (did you mean {right!r} by {method.__name__!r}?)"
            for method in own_methods(kind, base)
            if (right := closest(method.__name__, actions))
        ]
        wanted = f"{actions[0]}{parameters_of(getattr(base, actions[0]))}"
        raise UsageError(
            f"{place_of(kind)}: the kind of fault {kind.kind()!r} has {has}{''.join(meant[:1])}; "
            f"define {wanted}"
        )
    require_signatures(kind, base)


for _module in pkgutil.iter_modules(__path__):
    load(f"{__name__}.{_module.name}")

KINDS = _collected(_kinds_below(Fault))

ANY_KIND: Any = reduce(or_, KINDS.values())
"""The union of all kinds, for decoding."""
