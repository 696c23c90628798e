"""pytest collects ``*.scenario.yaml``, and tests get the fixture ``faultlab``.

Each such file is a test that passes if no rule is broken; the fixture runs a scenario that a test
has made, and fails the test with the story if one is. pytest loads this module wherever faultlab is
installed, so it imports nothing that takes time. Scenarios run in a process of their own, whose
hash seed is the one that all runs have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from faults import load, run

if TYPE_CHECKING:
    from faults import Run, Scenario

_SUFFIXES = (".scenario.yaml", ".scenario.yml")


class Faultlab(Protocol):
    """The type of the fixture ``faultlab``."""

    def __call__(self, scenario: Scenario | str | Path) -> Run:
        """Run ``scenario``, a file or a shipped name; the test fails unless it passes."""
        ...


class ScenarioFile(pytest.File):
    """A scenario file, which is one test."""

    def collect(self) -> Iterator[pytest.Item]:
        yield ScenarioItem.from_parent(self, name="run")


class ScenarioItem(pytest.Item):
    """One run of a scenario."""

    def runtest(self) -> None:
        """Run it; the test fails unless the verdict is that it passes."""
        run_or_fail(self.config, self.path)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The words of the command, without a traceback of this file."""
        if isinstance(excinfo.value, pytest.fail.Exception):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is, and what it is called."""
        return self.path, None, f"scenario {self.path.name}"


@pytest.fixture
def faultlab(request: pytest.FixtureRequest) -> Faultlab:
    """Runs a scenario, and fails the test with what was found and its story if a rule is broken."""

    def run_here(scenario: Scenario | str | Path) -> Run:
        __tracebackhide__ = True
        return run_or_fail(request.config, scenario)

    return run_here


def run_or_fail(config: pytest.Config, scenario: Scenario | str | Path) -> Run:
    """A run that passed, with the connector and sources that pytest was given."""
    from faults import Scenario, TestbedError, UsageError, with_settings  # noqa: PLC0415

    __tracebackhide__ = True
    try:
        wanted = scenario if isinstance(scenario, Scenario) else load(scenario)
        ran = run(with_settings(wanted, _settings(config)))
        failure = None if ran.passed else f"{_headline(ran)}\n\n{ran.text}"
    except (UsageError, TestbedError) as error:
        failure = f"faultlab: {error}"
    if failure is not None:  # outside of the handler, or pytest would show what led to the error
        pytest.fail(failure, pytrace=False)
    return ran


def _headline(ran: Run) -> str:
    """The first line, which is all that pytest's short summary has."""
    return ": ".join([ran.verdict, ", ".join(ran.outcome.signature())]).removesuffix(": ")


def _settings(config: pytest.Config) -> dict[str, str]:
    connector, overlay = (
        config.getoption("faultlab_connector"),
        config.getoption("faultlab_overlay"),
    )
    values = {"connector": connector, "overlay": overlay and str(overlay.resolve())}
    return {key: json.dumps(value) for key, value in values.items() if value is not None}


def pytest_addoption(parser: pytest.Parser) -> None:
    """What all scenarios are run with."""
    group = parser.getgroup("faultlab")
    group.addoption(
        "--faultlab-connector",
        metavar="NAME",
        help="run scenarios with this connector: a known one, or package.module:Class",
    )
    group.addoption(
        "--faultlab-overlay",
        dest="faultlab_overlay",
        metavar="DIR",
        type=Path,
        help="a directory, such as a vLLM checkout, whose sources win",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Scenario files are told by their names."""
    if file_path.name.endswith(_SUFFIXES):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None
