"""What ``--arm rocm`` needs of the machine, as ``faultlab doctor --hardware`` checks it."""

from __future__ import annotations

import pytest

from hw_tests.conftest import cannot, findings


def test_machine_has_what_hardware_tests_need(
    check_name: str, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--arm") != "rocm":
        cannot(request.config, "this arm needs nothing of the machine; use --arm rocm")
    (finding,) = [found for found in findings(request.config) if found.name == check_name]
    if not finding.ok:
        pytest.fail(str(finding), pytrace=False)
