"""Which faults a campaign has let strike in which phases, for people: a table where it fits, and
else a line for each kind."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from faults.cli.tables import print_plain
from faults.coverage import unreached, unreached_line
from sim.lifecycle import PHASES

Coverage = Mapping[str, Mapping[str, int]]
_HOLE = "0"
_MORE_THAN_ANY = 1_000  # columns: else what a table needs is told to be what there is


def print_coverage(console: Console, coverage: Coverage) -> None:
    """Print how often each possible pair of kind and phase was hit; what cannot be stays empty.

    Kinds that reached no request at all share a line.
    """
    apart = unreached(coverage)
    reached = {kind: row for kind, row in coverage.items() if any(row.values())}
    if reached:
        _print_reached(console, reached)
    if apart:
        console.print(unreached_line(apart), markup=False, highlight=False)


def _print_reached(console: Console, coverage: Coverage) -> None:
    table = _table(coverage)
    unlimited = console.options.update(width=_MORE_THAN_ANY)
    if console.measure(table, options=unlimited).maximum <= console.width:
        console.print(table)
        return
    for kind, row in coverage.items():
        holes = ", ".join(phase for phase, hits in row.items() if not hits)
        hit = sum(hits > 0 for hits in row.values())
        print_plain(console, f"  {kind}: {hit} of {len(row)}" + (holes and f"; never in {holes}"))


def _table(coverage: Coverage) -> Table:
    table = Table(
        title="how often each fault reached a request in each phase", title_justify="left"
    )
    table.add_column("fault", no_wrap=True)
    for phase in PHASES:
        words = phase.split("_")
        table.add_column(" ".join(words), justify="right", min_width=max(map(len, words)))
    for kind, row in coverage.items():
        table.add_row(kind, *(_cell(row.get(phase)) for phase in PHASES))
    return table


def _cell(hits: int | None) -> str:
    """Nothing for a pair that cannot be."""
    if hits is None:
        return ""
    return str(hits) if hits else f"[yellow]{_HOLE}[/]"
