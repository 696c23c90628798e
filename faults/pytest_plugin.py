"""pytest collects ``*.scenario.yaml``: each file is a test that passes if no rule is broken.

pytest loads this module wherever faultlab is installed, so it imports nothing that takes time.
Scenarios run in a process of their own, whose hash seed is the one that all runs have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.scenario_worker import ScenarioWorker

_SUFFIXES = (".scenario.yaml", ".scenario.yml")
_WORKER = pytest.StashKey[ScenarioWorker]()


class ScenarioFailed(Exception):
    """What ``faultlab run`` printed: what was found, the story of it, and how to replay it."""


class ScenarioFile(pytest.File):
    """A scenario file, which is one test."""

    def collect(self) -> Iterator[pytest.Item]:
        yield ScenarioItem.from_parent(self, name="run")


class ScenarioItem(pytest.Item):
    """One run of a scenario."""

    def runtest(self) -> None:
        """Run it; ScenarioFailed unless the verdict is that it passes."""
        answer = self.config.stash[_WORKER].run(self.path)
        if answer.exit_code:
            raise ScenarioFailed(answer.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The words of the command, without a traceback of this file."""
        if isinstance(excinfo.value, ScenarioFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is, and what it is called."""
        return self.path, None, f"scenario {self.path.name}"


def pytest_configure(config: pytest.Config) -> None:
    """The worker starts with the first scenario."""
    config.stash[_WORKER] = ScenarioWorker()


def pytest_unconfigure(config: pytest.Config) -> None:
    """It does not outlive pytest."""
    config.stash[_WORKER].end()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Scenario files are told by their names."""
    if file_path.name.endswith(_SUFFIXES):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None
