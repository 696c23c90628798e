"""Options of ``pytest hw_tests``: on which implementation tests run, and what a skip means.

On ``--arm rocm`` the whole preflight comes first, whatever was selected. If a machine lacks
something, nothing runs, all of it is told, and the exit code is 1.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from hw_tests.arms import ARMS, Arm, preflight
from hw_tests.option_types import address
from hw_tests.process.host_pair import HostPair
from hw_tests.unverified import NOTE

_RULED_OUT = "cannot run, and --require-hardware is set"
_NOT_THERE = "the arm cannot be had here, and CI is set"
_NEEDS_THE_SIMULATOR = ("test_transfer_geometry.py", "test_calibration.py")
_NO_SIMULATOR = "{} needs the simulator, and simpy is not installed here; pip install simpy"
_UNVERIFIED = f"arm rocm: {NOTE}"
_LACKS = 1
"""Exit code: nothing was run, as the machine lacks something."""
_OF_HARDWARE = ("arm", "engines")
"""Fixtures of tests that ask the library or engines; others say nothing of the machine."""
_ASKED = ("asked", "hardware")
_ASKED_NOTHING = (
    "--require-hardware: no test that passed has asked the hardware, so nothing of it was tested; "
    "select one that does, such as those of hw_tests/test_conformance.py"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hw_tests")
    group.addoption("--arm", choices=sorted(ARMS), default="sim", help="what tests run on")
    group.addoption(
        "--require-hardware",
        action="store_true",
        help="with --arm rocm: a test that cannot run fails, so that a run that tested nothing is "
        "never green",
    )
    group.addoption(
        "--peer",
        type=address,
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="with --arm rocm: another machine, on which faultlab doctor --hardware --serve runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Raises UsageError: an option with which no test runs, or one without effect on this arm."""
    _refuse_what_runs_no_test(config)
    if _on_rocm(config):
        return
    for name in ("--require-hardware", "--peer"):
        if given := config.getoption(name):
            value = "" if given is True else f" {' '.join(given)}"
            raise pytest.UsageError(
                f"{name}{value}: --arm {config.getoption('--arm')} needs nothing of this or any "
                f"other machine; use it with --arm rocm, or leave it out"
            )


def _refuse_what_runs_no_test(config: pytest.Config) -> None:
    """Such a run would count its tests as passed, or end well without any."""
    if not __debug__:  # conformance cases are no test modules, in which pytest keeps assertions
        raise pytest.UsageError("python -O or PYTHONOPTIMIZE: nothing would be asserted, and tests "
                                "would pass; unset it")  # fmt: skip
    for name in ("--setup-plan", "--setup-only"):
        if config.getoption(name.replace("-", "")):
            raise pytest.UsageError(f"{name}: no test would run, and all would pass; leave it out")
    if config.getoption("collectonly") and config.getoption("--require-hardware"):
        raise pytest.UsageError("--collect-only with --require-hardware: nothing would be tested; "
                                "leave one of them out")  # fmt: skip


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before anything is selected, so that nothing can deselect it."""
    config = session.config
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist, whose controller has looked
    has_been_done = is_worker or config.pluginmanager.has_plugin(HostPair.NAME)
    if not _on_rocm(config) or has_been_done or config.getoption("collectonly"):
        return
    missing = [finding for finding in preflight(config.getoption("--peer")) if not finding.ok]
    if missing:
        for line in (_UNVERIFIED, *missing):  # here, as pytest tells a reason to exit twice
            config.get_terminal_writer().line(str(line))
        pytest.exit(f"preflight failed, {len(missing)} missing; nothing was run", _LACKS)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [_UNVERIFIED] if _on_rocm(config) else []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report, pytest.CollectReport) and isinstance(report.longrepr, tuple):
            terminalreporter.write_line(report.longrepr[2])  # of whole files, also without -rs
    if _on_rocm(config):
        terminalreporter.write_line(_UNVERIFIED)


def _on_rocm(config: pytest.Config) -> bool:
    return bool(config.getoption("--arm") == "rocm")


@pytest.fixture(scope="session")
def arm(request: pytest.FixtureRequest) -> Arm:
    """What was asked for by ``--arm``."""
    arm = ARMS[request.config.getoption("--arm")]()
    reason = arm.unavailable()
    if reason is not None:
        if os.environ.get("CI"):  # where nobody reads why a green run has tested nothing
            pytest.fail(f"{_NOT_THERE}: {reason}", pytrace=False)
        cannot(request.config, reason)
    return arm


def cannot(config: pytest.Config, reason: str) -> None:
    """Skip the test that runs, or fail it if skips were ruled out."""
    if config.getoption("--require-hardware"):
        pytest.fail(f"{_RULED_OUT}: {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """A machine with GPUs need not have the simulator."""
    if module_path.name in _NEEDS_THE_SIMULATOR and not find_spec("simpy"):
        skipped: pytest.Module = _WithoutSimulator.from_parent(parent, path=module_path)
        return skipped
    return None


class _WithoutSimulator(pytest.Module):
    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip(_NO_SIMULATOR.format(self.path.name), allow_module_level=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _rule_out_a_skip(item.config, report)
    if call.when == "call" and not {*_OF_HARDWARE}.isdisjoint(getattr(item, "fixturenames", ())):
        report.user_properties.append(_ASKED)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A good end with ``--require-hardware`` needs a test that has asked some."""
    config = session.config
    terminal = config.pluginmanager.get_plugin("terminalreporter")  # none in a worker of xdist
    if exitstatus or not terminal or not config.getoption("--require-hardware"):
        return
    if not any(_ASKED in report.user_properties for report in terminal.getreports("passed")):
        terminal.write_line(_ASKED_NOTHING)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


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
