from __future__ import annotations

from requirement_rows import PAGE, named_tests, rows, up_to_date

REQUIREMENTS = [*(f"R{n}" for n in range(1, 20)), *(f"S{n}" for n in range(1, 9))]


def test_every_requirement_has_its_row() -> None:
    """In order, R1 to R19 and S1 to S8."""
    assert [row.name for row in rows(PAGE.read_text())] == REQUIREMENTS


def test_the_page_lists_the_tests_that_name_a_requirement() -> None:
    """``make requirements`` brings it up to date."""
    text = PAGE.read_text()
    assert text == up_to_date(text), "run: make requirements"


def test_every_requirement_is_named_by_a_test() -> None:
    """But those that the page says are not built; and no test names one that does not exist."""
    named = {name for _file, _test, names in named_tests() for name in names}
    built = [row.name for row in rows(PAGE.read_text()) if not row.what.endswith("(Not built.)")]
    assert sorted(named) == sorted(built)
