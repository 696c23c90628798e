"""The process of ``ScenarioWorker``: runs scenarios, each as ``faultlab run`` would.

A job is a line of JSON on stdin, its number and answer a line of JSON on what was stdout.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from faults import artifact
from faults.cli import logs
from faults.cli.outcome import plain_text
from faults.cli.run import save
from faults.cli.run_summary import render_run
from faults.cli.simulate import simulate
from faults.results import Run
from faults.scenario_worker import Refusal
from sim.errors import TestbedError, UsageError
from sim.scenario import Scenario


def main() -> int:
    """Serve jobs until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nobody else's words may get among the answers
    logs.configure()
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line)
        answers.write(msgspec.json.encode((job["number"], answer(job))) + b"\n")
        answers.flush()
    return 0


def answer(job: dict[str, Any]) -> Run | Refusal:
    """What came of the job, or why there was no run."""
    os.chdir(job["directory"])
    out = None if job["out"] is None else Path(job["out"])
    try:
        return _run(msgspec.convert(job["scenario"], Scenario), out)
    except (UsageError, msgspec.ValidationError) as error:
        return Refusal(True, str(error))
    except (TestbedError, Exception) as error:
        return Refusal(False, f"{type(error).__name__}: {error}")


def _run(scenario: Scenario, out: Path | None) -> Run:
    if out is not None:
        artifact.check_vacant(out, force=False)
    faulted = simulate(scenario)
    saved = save(scenario, faulted.result, out, force=False)
    render = partial(render_run, scenario=scenario, result=faulted.result, saved=saved)
    return Run(
        outcome=faulted.result.outcome,
        faults=faulted.faults,
        coverage=faulted.coverage,
        text=plain_text(render),
        artifact=None if saved is None else str(saved),
    )


if __name__ == "__main__":
    sys.exit(main())
