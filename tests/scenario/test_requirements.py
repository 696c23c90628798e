"""What a run shows of each requirement, with this project's connector and with upstream's."""

from __future__ import annotations

import pytest
from requirement_checks import CHECKS
from requirement_rows import PAGE, rows

TOO_LONG = ("S6",)
"""Scenarios that upstream takes minutes for."""
UPSTREAM = {row.name: row.upstream for row in rows(PAGE.read_text())}


@pytest.mark.requirement(
    "R1",
    "R3",
    "R5",
    "R6",
    "R7",
    "R8",
    "R9",
    "R10",
    "R11",
    "R12",
    "R13",
    "R14",
    "R15",
    "R16",
    "R17",
    "R19",
    "S1",
    "S2",
    "S4",
    "S5",
    "S6",
)
@pytest.mark.parametrize("name", CHECKS)
def test_the_connector_meets_the_requirement(name: str) -> None:
    """Its scenario breaks no rule, and ends as it has to."""
    assert CHECKS[name].verdict("hybrid") == "green"


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.soak] if n in TOO_LONG else []) for n in CHECKS],
)
def test_the_page_says_how_upstream_ends(name: str) -> None:
    """The same scenario with vLLM's own connector."""
    verdict, page = CHECKS[name].verdict("moriio"), UPSTREAM[name]
    assert verdict.startswith(page) if page.startswith("refused: ") else verdict == page


def test_the_scenarios_are_named_as_tests_of_their_requirements() -> None:
    """So that the page lists them."""
    marks = {mark.name: mark.args for mark in test_the_connector_meets_the_requirement.pytestmark}
    assert marks["requirement"] == tuple(CHECKS)


def test_a_row_without_a_scenario_says_why() -> None:
    """And one with a scenario has a verdict; what is kept (R18) has tests of its own."""
    not_run = [name for name, cell in UPSTREAM.items() if cell.startswith("not run: ")]
    assert sorted(not_run) == sorted(UPSTREAM.keys() - CHECKS.keys() - {"R18"})
