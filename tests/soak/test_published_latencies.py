"""The library's benchmark on the named fabrics, for every row that was published."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faults.bench.mori_io import Prediction, predict
from faults.bench.published import published
from sim.fabric import named_fabric

pytestmark = pytest.mark.soak

_PAGE = Path(__file__).parents[2] / "docs" / "fabrics.md"
_ROW = re.compile(
    r"^\| `(?P<fabric>\S+)` \| (?P<operation>read|write), "
    r".*?(?P<queue_pairs>\d+) queue pairs?, .*? \| (?P<rows>\d+) \| (?P<rms>[\d.]+) % \| "
    r"(?P<largest>[\d.]+) % \| (?P<where>.+) \|$",
    re.MULTILINE,
)
# Each table of the page, as its rows name it.
DOCUMENTED = [found.groupdict() for found in _ROW.finditer(_PAGE.read_text(encoding="utf-8"))]


def _name(table: dict[str, str]) -> str:
    return "-".join((table["fabric"], table["operation"], table["queue_pairs"]))


def _where(worst: Prediction) -> tuple[str, ...]:
    """As the page may say it: by its batch, or by the size of its messages."""
    size = worst.measured.message_bytes
    return f"batch {worst.measured.batch}", f"{size} B", f"{size // 1024} KiB"


def test_all_tables_are_on_the_page() -> None:
    """So that none is left out of the comparison below."""
    there_are = {f"{row.fabric}-{row.operation}-{row.queue_pairs}" for row in published()}
    assert sorted(map(_name, DOCUMENTED)) == sorted(there_are)


@pytest.mark.parametrize("table", DOCUMENTED, ids=_name)
def test_every_published_row_is_met_as_documented(table: dict[str, str]) -> None:
    """Within 10 %; and how many rows there are, their errors and where the largest one is are what
    the page says."""
    found = [
        predict(named_fabric(row.fabric), row)
        for row in published()
        if f"{row.fabric}-{row.operation}-{row.queue_pairs}" == _name(table)
    ]
    worst = max(found, key=lambda prediction: abs(prediction.error))
    rms = (sum(prediction.error**2 for prediction in found) / len(found)) ** 0.5
    assert abs(worst.error) <= 0.10
    assert len(found) == int(table["rows"])
    assert 100 * rms == pytest.approx(float(table["rms"]), abs=0.06)
    assert 100 * abs(worst.error) == pytest.approx(float(table["largest"]), abs=0.06)
    assert table["where"] in _where(worst)
