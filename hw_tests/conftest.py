"""Options of ``pytest hw_tests``: on which implementation tests run, and what a skip means."""

from __future__ import annotations

import pytest

from hw_tests.arms import ARMS, Arm


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hw_tests")
    group.addoption("--arm", choices=sorted(ARMS), default="sim", help="what tests run on")
    group.addoption(
        "--require-hardware",
        action="store_true",
        help="a test that cannot run fails, so that a run that tested nothing is never green",
    )


@pytest.fixture(scope="session")
def arm(request: pytest.FixtureRequest) -> Arm:
    """What was asked for by ``--arm``."""
    arm = ARMS[request.config.getoption("--arm")]()
    reason = arm.unavailable()
    if reason is not None:
        cannot(request.config, reason)
    return arm


def cannot(config: pytest.Config, reason: str) -> None:
    """Skip the test that runs, or fail it if skips were ruled out."""
    if config.getoption("--require-hardware"):
        pytest.fail(f"cannot run, and --require-hardware is set: {reason}", pytrace=False)
    pytest.skip(reason)
