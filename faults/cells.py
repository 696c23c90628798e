"""Which kinds of fault can reach a request in which phase: all pairs but those of a reviewed list.

The list is ``impossible_cells.yaml``, with a reason for each. What is not in it has to be hit by a
test, and by campaigns that are long enough; what is in it is never hit, or the run is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from sim.errors import TestbedError
from sim.lifecycle import PHASES, Phase
from sim.scenario.yaml_text import parse_yaml

Cell = tuple[str, Phase]
LIST = Path(__file__).with_name("impossible_cells.yaml")


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All pairs of ``kinds`` and ``phases``, and why none of them can occur."""

    kinds: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    phases: Annotated[tuple[Phase, ...], msgspec.Meta(min_length=1)]
    reason: Annotated[str, msgspec.Meta(min_length=1)]


@cache
def entries() -> tuple[Entry, ...]:
    """The list, as it is written."""
    document = parse_yaml(LIST.read_text(), source=LIST.name)
    return msgspec.convert(document, tuple[Entry, ...])


@cache
def impossible_cells() -> dict[Cell, str]:
    """Each pair of the list, with its reason."""
    return {
        (kind, phase): entry.reason
        for entry in entries()
        for kind in entry.kinds
        for phase in entry.phases
    }


def possible_phases(kind: str) -> tuple[Phase, ...]:
    """The phases in which a fault of ``kind`` can reach a request, in order."""
    return tuple(phase for phase in PHASES if (kind, phase) not in impossible_cells())


def require_possible(cells: Iterable[Cell]) -> None:
    """Refuse what cannot be: either the list is wrong, or the kind's code, or the life cycle's.

    Raises:
        TestbedError: naming the first pair that is on the list.
    """
    for kind, phase in cells:
        reason = impossible_cells().get((kind, phase))
        if reason is not None:
            raise TestbedError(
                f"{kind} reached a request in phase {phase}, which {LIST.name} says cannot be: "
                f"{reason} Correct the list, the kind or what tells the phase"
            )
