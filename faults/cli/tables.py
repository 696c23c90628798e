"""Tables for people, which fold their cells where there is little room, and never cut them."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def print_table(console: Console, table: Table) -> None:
    """Print ``table`` with every cell in full."""
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = False
    console.print(table)


def print_plain(console: Console, text: str) -> None:
    """Print without wrapping or markup, so that a command can be copied as it stands."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)
