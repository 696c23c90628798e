"""Runs the seeds of a mutant until a rule is broken that the shipped connector keeps.

A group of failures counts only if the same seed without the defect does not fall into it, so that
what is wrong with the shipped connector is never taken for the mutant's.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from faults.campaign.result import SeedResult
from faults.campaign.worker import Job, run_job
from faults.mutants.mutant import QUIET_PHASE_S, Mutant


class Hunt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mutant.

    Args:
        name: of the mutant.
        breaks: what is wrong with it.
        place: of the change, ``module:qualname``.
        runs: seeds that were run, the one that caught it included.
        seed: that caught it; None if none did.
        groups: of failures that the seed fell into because of the defect.
        detail: the words of the first of them.
        others: seeds that said nothing: their engines did not start, or the testbed failed.
        wall_s: real seconds.
    """

    name: str
    breaks: str
    place: str
    runs: int
    seed: int | None = None
    groups: list[str] = []
    detail: str = ""
    others: list[str] = []
    wall_s: float = 0.0


def hunt(mutant: Mutant, seeds: Sequence[int], quiet_phase_s: float = QUIET_PHASE_S) -> Hunt:
    """Run ``mutant`` on one seed after another until it is caught.

    Raises:
        MutantOutdated: the code that it changes is no longer there.
    """
    place = f"{mutant.module}:{mutant.qualname}"
    about = Hunt(name=mutant.name, breaks=mutant.breaks, place=place, runs=0)
    others: list[str] = []
    wall_s = 0.0
    with TemporaryDirectory(prefix="faultlab-mutant-") as directory:
        mutant.write(Path(directory))
        mutated = mutant.options(Path(directory), quiet_phase_s)
        for number, seed in enumerate(seeds, 1):
            result = run_job(Job(seed, mutated))
            wall_s += result.wall_s
            about = msgspec.structs.replace(about, runs=number, wall_s=wall_s, others=others)
            if result.status in ("refused", "error"):
                others.append(f"seed {seed}: {result.status}: {result.detail}")
            if result.status != "failed":
                continue
            shipped = run_job(Job(seed, mutant.options(None, quiet_phase_s)))
            caught = _caught(about, result, shipped)
            if caught is not None:
                return caught
    return about


def _caught(about: Hunt, mutated: SeedResult, shipped: SeedResult) -> Hunt | None:
    known = {failure.group for failure in shipped.failures}
    new = [failure for failure in mutated.failures if failure.group not in known]
    if not new or shipped.status not in ("passed", "failed"):
        return None
    groups = [failure.group for failure in new]
    return msgspec.structs.replace(about, seed=mutated.seed, groups=groups, detail=new[0].detail)


def hunt_all(mutants: Sequence[Mutant], seeds: Sequence[int], jobs: int) -> Iterator[Hunt]:
    """Hunt each mutant in one of ``jobs`` processes; results as they come."""
    for mutant in mutants:
        mutant.mutated()  # one that is outdated is told before anything runs
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_silence_stdout) as pool:
        futures = [pool.submit(hunt, mutant, seeds) for mutant in mutants]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _silence_stdout() -> None:
    os.dup2(2, 1)  # what libraries print must not get into the JSON of the command
