"""Runs a scenario for a command: checked before vLLM is loaded, watched while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from faults.cli.loading import loading
from faults.cli.progress import progress
from faults.cli.watchdog import watchdog
from faults.schedule import check_names, decode
from sim.errors import MisplacedError, UsageError
from sim.foresight import require_possible
from sim.kernel import Seed
from sim.scenario import Scenario, workload_of
from sim.scenario.yaml_text import where_in_file

if TYPE_CHECKING:
    from faults.running import FaultedRun
    from sim.testbed import TestBed


def simulate(scenario: Scenario, *, source: str | None = None) -> FaultedRun:
    """Run ``scenario`` with its faults; errors as those of ``faults.running.run``.

    ``source`` is the file that a UsageError names, where all of the scenario comes from one.
    """
    with _naming(source):
        requests = workload_of(scenario, Seed(scenario.seed).stream("workload"))
        faults = decode(scenario.faults, source="the scenario")
        check_names(faults, scenario.engine_names, [spec.request_id for spec in requests])
        require_possible(scenario)
        with loading():
            from faults.running import run  # noqa: PLC0415  # loads vLLM
        return run(scenario, watch=_watched)


@contextmanager
def _naming(source: str | None) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        if source is None:
            raise
        place = source
        if isinstance(error, MisplacedError):
            place = where_in_file(Path(source))(error.keys)
        raise UsageError(f"{place}: {error}") from error


@contextmanager
def _watched(bed: TestBed) -> Iterator[None]:
    with watchdog(bed.kernel), progress(bed):
        yield
