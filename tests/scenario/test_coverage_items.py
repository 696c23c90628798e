"""Faults of transfers, messages, memory and queue pairs hit requests in each possible phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.cells import possible_phases
from faults.kinds import KINDS
from tests.scenario.forced_cells import ITEMS_IN_BRIEF, MORE_ITEMS, phases_hit
from tests.scenario.test_coverage_cells import AIMS


@pytest.mark.parametrize("kind", ITEMS_IN_BRIEF)
def test_every_phase_that_is_possible_is_hit(kind: str, tmp_path: Path) -> None:
    hit = phases_hit(kind, ITEMS_IN_BRIEF[kind], tmp_path)
    assert set(possible_phases(kind)) - hit == set()


def test_no_kind_is_left_out() -> None:
    """Each is forced here or beside, in the long tests, or can reach no request at all."""
    forced = {*AIMS, *ITEMS_IN_BRIEF, *MORE_ITEMS}
    assert {kind for kind in KINDS if possible_phases(kind)} == forced
