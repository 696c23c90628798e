"""The faults that are judged at the same points as those of the quick tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.cells import possible_phases
from tests.scenario.forced_cells import MORE_ITEMS, phases_hit

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("kind", MORE_ITEMS)
def test_every_phase_that_is_possible_is_hit(kind: str, tmp_path: Path) -> None:
    hit = phases_hit(kind, MORE_ITEMS[kind], tmp_path)
    assert set(possible_phases(kind)) - hit == set()
