"""How a campaign shows people which faults struck in which phases."""

from __future__ import annotations

import io
import re

from rich.console import Console

from faults.cli.coverage_table import print_coverage
from sim.lifecycle import PHASES

COVERAGE = {
    "abort": {"handshake": 0, "decode": 1203},
    "stop-token": {"queued_at_p": 2},
}


def shown(width: int) -> str:
    text = io.StringIO()
    print_coverage(Console(file=text, width=width), COVERAGE)
    return text.getvalue()


def test_a_wide_terminal_gets_a_table() -> None:
    """A number where a fault was, 0 for a hole, and nothing where it cannot be."""
    assert all(phase.replace("_", " ") in shown(180) for phase in PHASES)
    lines = shown(180).splitlines()
    (abort,) = (line for line in lines if "abort" in line)
    cells = [cell.strip() for cell in re.split("[│┃]", abort)[1:-1]]
    assert cells == ["abort", "0", *[""] * 9, "1203", ""]
    assert max(map(len, lines)) <= 180


def test_a_narrow_one_gets_a_line_for_each_kind() -> None:
    """With the holes by name, and nothing cut off."""
    assert shown(60).splitlines() == [
        "  abort: 1 of 2; never in handshake",
        "  stop-token: 1 of 1",
    ]
