"""A worker process: imports vLLM once, then runs one seed after another.

A job is a line of JSON on stdin, its result a line of JSON on what was stdout; whatever libraries
print goes to stderr. It ends when stdin does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import msgspec

from faults import artifact
from faults.campaign.excuses import judge
from faults.campaign.overlay import with_overlay, write_overlay
from faults.campaign.result import SeedResult, Status, failures_of
from faults.campaign.swarm import SwarmOptions, scenario_of
from faults.cli import logs
from sim.errors import StartRefused, TestbedError
from sim.stopwatch import wall_clock


class Job(msgspec.Struct, frozen=True):
    """A seed to run; its artifact goes to ``directory`` if it fails in a group not in ``seen``.

    ``overlay`` has the files of an overlay by their paths, where the job brings its own.
    """

    seed: int
    options: SwarmOptions
    directory: str | None = None
    seen: list[str] = []
    overlay: dict[str, str] = {}


def main() -> int:
    """Serve jobs until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nobody else's words may get among the answers
    logs.configure()
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:  # the campaign was killed, and nobody wants the answer
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
    return 0


def serve(jobs: IO[bytes], answers: IO[bytes]) -> None:
    """One answer for each job, in order."""
    for line in jobs:
        job = msgspec.json.decode(line, type=Job)
        answers.write(msgspec.json.encode(run_job(job)) + b"\n")
        answers.flush()


def run_job(job: Job) -> SeedResult:
    """Run one seed; a failure of the testbed is an answer, too."""
    begin = wall_clock()
    try:
        result = _run_with_overlay(job) if job.overlay else _run(job)
    except StartRefused as refusal:
        result = SeedResult(seed=job.seed, status="refused", detail=str(refusal))
    except (TestbedError, Exception) as error:
        detail = f"{type(error).__name__}: {error}"
        result = SeedResult(seed=job.seed, status="error", detail=detail)
    return msgspec.structs.replace(result, wall_s=wall_clock() - begin)


def _run_with_overlay(job: Job) -> SeedResult:
    with TemporaryDirectory(prefix="faultlab-overlay-") as directory:
        write_overlay(Path(directory), job.overlay)
        options = with_overlay(job.options, Path(directory))
        return _run(msgspec.structs.replace(job, options=options))


def _run(job: Job) -> SeedResult:
    from faults.running import run  # noqa: PLC0415  # loads vLLM

    scenario = scenario_of(job.seed, job.options)
    faulted = run(scenario)
    outcome = faulted.result.outcome
    judged = judge(outcome.violations, faulted.result.log.records, scenario)
    failures = failures_of(judged.counting)
    status: Status = "passed" if outcome.passed else "failed"
    if not failures and judged.excused:
        status = "failed-closed" if judged.ended_steps else "refused"
    directory = None
    if job.directory is not None and any(f.group not in job.seen for f in failures):
        directory = Path(job.directory) / f"seed-{job.seed}"
        artifact.write(directory, scenario, faulted.result, command_line=sys.argv, force=True)
    return SeedResult(
        seed=job.seed,
        status=status,
        failures=failures,
        coverage=faulted.coverage,
        event_hash=outcome.event_hash,
        virtual_s=outcome.virtual_s,
        detail="" if failures else "".join(v.detail for v in judged.excused[:1]),
        artifact=None if directory is None else str(directory),
    )


if __name__ == "__main__":
    sys.exit(main())
