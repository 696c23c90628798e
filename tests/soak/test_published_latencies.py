"""The library's benchmark on the named fabrics, for every row that was published."""

from __future__ import annotations

import pytest

from faults.bench.mori_io import predict
from faults.bench.published import published
from sim.fabric import named_fabric

pytestmark = pytest.mark.soak

# By fabric, operation and queue pairs, as docs/fabrics.md shows them.
LARGEST_ERROR = {
    ("mi300x-cx7", "write", 1): 0.023,
    ("mi300x-cx7", "read", 1): 0.033,
    ("mi300x-thor2", "read", 2): 0.0215,
    ("mi300x-thor2", "write", 4): 0.096,
    ("mi300x-thor2", "write", 16): 0.097,
}


@pytest.mark.parametrize("table", LARGEST_ERROR, ids=str)
def test_every_published_row_is_met_as_documented(table: tuple[str, str, int]) -> None:
    """The largest error of each table is what the page says."""
    rows = [row for row in published() if (row.fabric, row.operation, row.queue_pairs) == table]
    errors = [abs(predict(named_fabric(row.fabric), row).error) for row in rows]
    assert max(errors) == pytest.approx(LARGEST_ERROR[table], abs=0.0006)
