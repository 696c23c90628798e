"""Runs the seeds of a mutant until a rule is broken that the shipped connector keeps.

A group of failures counts only if the same seed without the defect does not fall into it, so that
what is wrong with the shipped connector is never taken for the mutant's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

import msgspec

from faults.campaign.pool import Pool
from faults.campaign.result import SeedResult
from faults.campaign.worker import Job, run_job
from faults.mutants.mutant import QUIET_PHASE_S, Mutant
from sim.errors import TestbedError

Run = Callable[[Job], SeedResult]


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


def hunt(
    mutant: Mutant,
    seeds: Sequence[int],
    quiet_phase_s: float = QUIET_PHASE_S,
    run: Run = run_job,
) -> Hunt:
    """Let ``run`` run ``mutant`` on one seed after another until it is caught.

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
            result = run(Job(seed, mutated))
            wall_s += result.wall_s
            about = msgspec.structs.replace(about, runs=number, wall_s=wall_s, others=others)
            if result.status in ("refused", "error"):
                others.append(f"seed {seed}: {result.status}: {result.detail}")
            if result.status != "failed":
                continue
            shipped = run(Job(seed, mutant.options(None, quiet_phase_s)))
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


def hunt_all(
    mutants: Sequence[Mutant], seeds: Sequence[int], jobs: int, seed_limit_s: float
) -> Iterator[Hunt]:
    """Hunt ``jobs`` mutants at a time, each in a process that takes one after another; results as
    they come. A run that takes longer than ``seed_limit_s`` costs its seed and its process."""
    for mutant in mutants:
        mutant.mutated()  # one that is outdated is told before anything runs
    with ExitStack() as stack, ThreadPoolExecutor(jobs) as threads:
        runners = [stack.enter_context(_Runner(seed_limit_s)) for _ in range(jobs)]
        free: SimpleQueue[_Runner] = SimpleQueue()
        for runner in runners:
            free.put(runner)

        def hunt_one(mutant: Mutant) -> Hunt:
            runner = free.get()
            try:
                return hunt(mutant, seeds, run=runner.run)
            finally:
                free.put(runner)

        futures = [threads.submit(hunt_one, mutant) for mutant in mutants]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for runner in runners:
                runner.stop()


class _Runner:
    """A worker process of a campaign for one thread that waits for it."""

    def __init__(self, seed_limit_s: float) -> None:
        self._pool = Pool(1, seed_limit_s)
        self._stopped = False

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def run(self, job: Job) -> SeedResult:
        """The result of ``job``; an error if it hangs or its process dies."""
        if self._stopped:
            raise TestbedError("the hunt is over")
        (result,) = self._pool.run(iter([job.seed]), lambda _: job)
        return result

    def stop(self) -> None:
        """End the process, and with it what the thread waits for."""
        self._stopped = True
        self._pool.end()
