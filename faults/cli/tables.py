"""Tables for people, which fold their cells where there is little room, and never cut them."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_ROOM = 60
"""Columns; on a narrower screen names might be cut off rather than folded."""


def print_table(console: Console, table: Table) -> None:
    """Print ``table`` with every cell in full; those of columns that are not to be wrapped in one
    piece, if there is room for that."""
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = column.no_wrap and console.width >= _ROOM
    console.print(table)


def print_plain(console: Console, text: str) -> None:
    """Print without wrapping or markup, so that a command can be copied as it stands."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)
