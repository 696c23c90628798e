"""Options of ``pytest hw_tests``: on which implementation tests run, and what a skip means.

On ``--arm rocm`` a machine that lacks something fails: only the preflight runs, and says what.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from hw_tests.arms import ARMS, Arm, preflight
from hw_tests.preflight import CHECKS, Finding
from hw_tests.process.host_pair import HostPair
from hw_tests.unverified import NOTE

_RULED_OUT = "cannot run, and --require-hardware is set"
_NEEDS_THE_SIMULATOR = ("test_transfer_geometry.py", "test_calibration.py")
_UNVERIFIED = f"arm rocm: {NOTE}"
_PREFLIGHT = "test_hardware_preflight.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hw_tests")
    group.addoption("--arm", choices=sorted(ARMS), default="sim", help="what tests run on")
    group.addoption(
        "--require-hardware",
        action="store_true",
        help="a test that cannot run fails, so that a run that tested nothing is never green",
    )
    group.addoption(
        "--peer",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="with --arm rocm: another machine, on which faultlab doctor --hardware --serve runs",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [_UNVERIFIED] if _on_rocm(config) else []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if _on_rocm(config):
        terminalreporter.write_line(_UNVERIFIED)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each check of the preflight and each peer."""
    if "check_name" in metafunc.fixturenames:
        names = [check.name for check in CHECKS]
        names += [f"peer {peer}" for peer in metafunc.config.getoption("--peer")]
        metafunc.parametrize("check_name", names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a machine that lacks something nothing but the preflight is left to run, and to fail."""
    here = [item for item in items if item.path.is_relative_to(config.rootpath / "hw_tests")]
    if not here or not _on_rocm(config) or config.pluginmanager.has_plugin(HostPair.NAME):
        return
    if not (missing := _missing(config)):
        return
    others = [item for item in here if item.path.name != _PREFLIGHT]
    if len(others) == len(here):
        lines = "\n".join(map(str, missing))
        pytest.exit(f"preflight failed, nothing was run:\n{lines}", returncode=1)
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def _on_rocm(config: pytest.Config) -> bool:
    return bool(config.getoption("--arm") == "rocm")


def findings(config: pytest.Config) -> list[Finding]:
    """Of the preflight of this machine and the peers that were named."""
    return preflight(config.getoption("--peer"))


def _missing(config: pytest.Config) -> list[Finding]:
    return [finding for finding in findings(config) if not finding.ok]


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
        pytest.fail(f"{_RULED_OUT}: {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A machine with GPUs need not have the simulator."""
    is_optional = collection_path.name in _NEEDS_THE_SIMULATOR
    if is_optional and not find_spec("simpy") and not config.getoption("--require-hardware"):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _rule_out_a_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _rule_out_a_skip(collector.config, report)
    return report


def _rule_out_a_skip(
    config: pytest.Config, report: pytest.TestReport | pytest.CollectReport
) -> None:
    """By whatever way: pytest's own, a mark, or a module that cannot be imported."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):  # which has run, and failed
        return
    if not config.getoption("--require-hardware"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    report.outcome = "failed"
    report.longrepr = f"{_RULED_OUT}: {reason}"
