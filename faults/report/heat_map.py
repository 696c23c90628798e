"""Coverage as rows of cells: how often each fault reached a request in each phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

from faults.cells import impossible_cells
from faults.coverage import unreached, unreached_line
from sim.lifecycle import PHASES, Phase

Coverage = Mapping[str, Mapping[str, int]]
_SHADES = 5


@dataclass(frozen=True)
class Cell:
    """``text`` is the number of hits; nothing where a pair cannot be, and ``title`` says why."""

    text: str
    shade: str
    title: str


@dataclass(frozen=True)
class HeatMap:
    """``hit`` of ``possible`` pairs have been hit; ``apart`` says which kinds have no row, because
    they reached no request."""

    phases: list[str]
    rows: list[tuple[str, list[Cell]]]
    apart: str
    hit: int
    possible: int


def heat_map(coverage: Coverage) -> HeatMap:
    """Shades grow with the order of magnitude; a pair that was never hit has one of its own."""
    numbers = [hits for row in coverage.values() for hits in row.values()]
    most = max(numbers, default=0)
    apart = unreached(coverage)
    return HeatMap(
        phases=[phase.replace("_", " ") for phase in PHASES],
        rows=[
            (kind, [_cell(kind, phase, row.get(phase), most) for phase in PHASES])
            for kind, row in coverage.items()
            if any(row.values())
        ],
        apart=unreached_line(apart) if apart else "",
        hit=sum(hits > 0 for hits in numbers),
        possible=len(numbers),
    )


def _cell(kind: str, phase: Phase, hits: int | None, most: int) -> Cell:
    if hits is None:
        return Cell("", "never", impossible_cells().get((kind, phase), "cannot be"))
    if not hits:
        return Cell("0", "hole", f"{kind} never reached a request in {phase}")
    shade = 1 + int((_SHADES - 1) * log(hits) / log(most)) if most > 1 else _SHADES
    return Cell(str(hits), f"heat{shade}", f"{kind} in {phase}: {hits}")
