"""What callers of ``mori.io`` rely on, on the implementation that ``--arm`` names."""

from __future__ import annotations

import pytest

from hw_tests.arms import Arm
from hw_tests.conformance import CASES
from hw_tests.conformance.arm import Case
from hw_tests.conftest import cannot


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_library_behaves_as_the_case_says(
    arm: Arm, case: Case, request: pytest.FixtureRequest
) -> None:
    missing = sorted(case.needs - arm.features)
    if missing:
        cannot(request.config, f"this arm has no {', '.join(missing)}")
    arm.run(case)
