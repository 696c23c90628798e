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
