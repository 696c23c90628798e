"""What was seen of the library, what pins it, and docs/hardware.md agree."""

from __future__ import annotations

import pytest
from fact_rows import PAGE, Fact, facts, table, table_of

from hw_tests.conformance import CASES

_TIMES = {
    1: (*(f"0.{number}" for number in range(1, 11)), "1.1", "1.2", "3.3"),
    2: ("2.1", "2.2"),
    4: ("1.5", "2.5", "2.10", "2.12", "2.13"),
    5: ("1.4",),
    6: ("2.4", "2.6", "2.8"),
    7: ("2.3",),
    8: ("1.6", "2.7"),
    9: ("2.9",),
}
SEEN = {section: count for count, sections in _TIMES.items() for section in sections}
"""How many facts of each section were seen by running the library: none may be lost."""


def test_no_fact_is_lost() -> None:
    counts: dict[str, int] = {}
    for fact in facts():
        if not fact.read:
            counts[fact.number] = counts.get(fact.number, 0) + 1
    assert counts == SEEN


@pytest.mark.parametrize("fact", facts(), ids=lambda fact: f"{fact.number}: {fact.what}")
def test_a_fact_has_a_case_on_each_arm_or_a_reason(fact: Fact) -> None:
    """One that runs on the released library, where it was seen, and one on the simulated one."""
    assert fact.wrong() is None


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (Fact("2.9", "is not there", ("no_such_case",)), "no such cases: no_such_case"),
        (Fact("2.9", "has nothing"), "no case on mori-cpu, sim"),
        (Fact("0.10", "of one arm", ("an_idle_engine_keeps_a_core_busy",)), "no case on sim"),
        (Fact("1.1", "has a reason too many", ("exports",), "whatever"), "delete it"),
    ],
)
def test_a_fact_without_its_cases_is_noticed(fact: Fact, words: str) -> None:
    assert words in (fact.wrong() or "")


def test_a_row_says_which_of_its_cases_run_on_an_arm() -> None:
    """If not all do; an arm that stands alone runs each of them."""
    row = Fact("1.1", "w", ("exports", "completion_errors", "engine_descriptor")).row()
    assert row.endswith("| sim, mori-cpu; rocm: only `exports`, `engine_descriptor` |")
    assert Fact("1.1", "w", ("exports",)).row().endswith("| sim, mori-cpu, rocm |")


def test_a_case_is_about_a_fact_of_its_section() -> None:
    """So no case can be left out of the table."""
    named = {(fact.number, case) for fact in facts() for case in fact.cases}
    assert sorted({(case.section, case.body.__name__) for case in CASES} - named) == []


def test_the_page_has_the_table() -> None:
    """If not: .venv/bin/python tests/tidy/fact_rows.py"""
    assert table_of(PAGE.read_text()) == table()
