"""Which kinds of fault reached a request in which phase of its life, counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from faults.cells import Cell, possible_phases, require_possible
from faults.plural import counted
from sim.lifecycle import PHASES, Phase

Table = dict[str, dict[str, int]]


class FaultReport(msgspec.Struct, frozen=True):
    """What became of one fault: how often it struck, what it reached, why it could not strike."""

    kind: str
    strikes: int
    hits: int
    missed: list[str]


class Coverage:
    """Fault kind × phase → how often a request was in the phase when the fault reached it."""

    def __init__(self) -> None:
        self._hits: dict[Cell, int] = {}

    def hit(self, kind: str, phase: Phase) -> None:
        """A fault of ``kind`` has reached a request that was in ``phase``."""
        self._hits[kind, phase] = self._hits.get((kind, phase), 0) + 1

    def table(self, kinds: Iterable[str]) -> Table:
        """Rows for ``kinds``, with every phase that is possible for the kind.

        Raises:
            TestbedError: a pair was hit that is on the list of those that cannot be.
        """
        require_possible(self._hits)
        return {
            kind: {phase: self._hits.get((kind, phase), 0) for phase in possible_phases(kind)}
            for kind in kinds
        }


def merge(tables: Iterable[Table]) -> Table:
    """The sum of several tables."""
    total: Table = {}
    for table in tables:
        for kind, row in table.items():
            into = total.setdefault(kind, {})
            for phase, hits in row.items():
                into[phase] = into.get(phase, 0) + hits
    return {
        kind: {phase: total[kind][phase] for phase in PHASES if phase in total[kind]}
        for kind in sorted(total)
    }


def holes(table: Table) -> list[tuple[str, str]]:
    """The cells that are possible and empty."""
    return [(kind, phase) for kind, row in table.items() for phase, hits in row.items() if not hits]


def unreached(table: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The kinds that were hit in no phase of those that are possible: such as cannot occur in the
    runs at hand, or were not drawn."""
    return [kind for kind, row in table.items() if row and not any(row.values())]


def unreached_line(kinds: Sequence[str]) -> str:
    """Those kinds in words, in one line."""
    what = f"{counted(len(kinds), 'kind')} reached no request"
    return f"{what}: {', '.join(kinds)}"
