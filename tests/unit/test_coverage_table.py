"""How a campaign shows people which faults struck in which phases."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from faults.cli.coverage_table import Coverage, print_coverage
from faults.report.heat_map import heat_map
from sim.lifecycle import PHASES

COVERAGE = {
    "abort": {"handshake": 0, "decode": 1203},
    "stop-token": {"queued_at_p": 2},
}


def shown(width: int, coverage: Coverage = COVERAGE) -> str:
    text = io.StringIO()
    print_coverage(Console(file=text, width=width), coverage)
    return text.getvalue()


def test_a_wide_terminal_gets_a_table() -> None:
    """A number where a fault was, 0 for a hole, and nothing where it cannot be."""
    assert all(phase.replace("_", " ") in shown(180) for phase in PHASES)
    lines = shown(180).splitlines()
    (abort,) = (line for line in lines if "abort" in line)
    cells = [cell.strip() for cell in re.split("[│┃]", abort)[1:-1]]
    assert cells == ["abort", "0", *[""] * 9, "1203", ""]
    assert max(map(len, lines)) <= 180


@pytest.mark.parametrize("width", [60, 180])
def test_kinds_that_reached_nobody_share_a_line(width: int) -> None:
    """Instead of a row of zeros each, on the screen and on a page."""
    some = {"abort": {"decode": 0}, "crash": {"decode": 0, "handoff": 0}, "pause": {"decode": 3}}
    text = shown(width, some)
    assert "2 kinds reached no request: abort, crash" in text
    assert text.count("abort") == text.count("crash") == 1
    assert "pause" in text
    page = heat_map(some)
    assert [kind for kind, _ in page.rows] == ["pause"]
    assert (page.apart, page.hit, page.possible) == (
        "2 kinds reached no request: abort, crash",
        1,
        4,
    )
    nothing = {"abort": {"decode": 0}}
    assert shown(width, nothing) == "1 kind reached no request: abort\n"
    assert heat_map(COVERAGE).apart == ""


def test_a_narrow_one_gets_a_line_for_each_kind() -> None:
    """With the holes by name, and nothing cut off."""
    assert shown(60).splitlines() == [
        "  abort: 1 of 2; never in handshake",
        "  stop-token: 1 of 1",
    ]
