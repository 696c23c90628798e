"""Worker processes that take seeds, and what becomes of a seed whose worker dies or hangs.

Workers are in a session of their own, so that Ctrl-C reaches only this process, which then ends
them and keeps what they had finished.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from faults.campaign.executor import MakeJob, lost
from faults.campaign.result import SeedResult
from faults.campaign.worker import Job
from faults.cli.reexec import simulation_environment
from sim.stopwatch import wall_clock

_LOOKS_EVERY_S = 0.5


class _Worker:
    """One process and the seed that it works on."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=simulation_environment(os.environ),
        )
        self.seed: int | None = None
        self.since_s = 0.0

    def give(self, job: Job) -> None:
        """Start a job."""
        assert self.process.stdin is not None
        self.seed, self.since_s = job.seed, wall_clock()
        try:
            self.process.stdin.write(msgspec.json.encode(job) + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, which reading from it will tell

    def take(self) -> SeedResult:
        """The answer to the job, or that there is none because the process has died."""
        assert self.process.stdout is not None
        assert self.seed is not None
        line = self.process.stdout.readline()
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=SeedResult)
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return lost(self.seed, f"the worker process died ({how})", self.since_s)

    def hung(self, limit_s: float) -> SeedResult:
        """The result of a seed that took too long; the process is no use any more."""
        assert self.seed is not None
        self.end()
        detail = f"the worker process did not finish it within {limit_s:g} s"
        return lost(self.seed, detail, self.since_s)

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


class Pool:
    """``jobs`` workers; each seed takes at most ``limit_s`` of wall time.

    Workers stay for the next ``run`` until the pool is left.
    """

    def __init__(self, jobs: int, limit_s: float, command: list[str] | None = None) -> None:
        self._command = command or [sys.executable, "-m", "faults.campaign.worker"]
        self._jobs = jobs
        self._limit_s = limit_s
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []

    def __enter__(self) -> Pool:
        """Workers start when they are needed."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """None outlives the pool."""
        self.end()

    def end(self) -> None:
        """End all workers, from whatever thread."""
        for worker in (*self._workers, *self._idle):
            worker.end()

    def run(self, seeds: Iterator[int], make_job: MakeJob) -> Generator[SeedResult, None, None]:
        """As an executor does."""
        try:
            for _ in range(self._jobs):
                self._start(seeds, make_job)
            while self._workers:
                for worker, result in self._finished():
                    self._remove(worker)
                    yield result
                    if worker.process.poll() is None:
                        self._idle.append(worker)
                    self._start(seeds, make_job)
        finally:
            for worker in self._workers[:]:
                self._remove(worker)
                worker.end()

    def _start(self, seeds: Iterator[int], make_job: MakeJob) -> None:
        seed = next(seeds, None)
        if seed is not None:
            worker = self._idle.pop() if self._idle else _Worker(self._command)
            self._add(worker, make_job(seed))

    def _add(self, worker: _Worker, job: Job) -> None:
        self._workers.append(worker)
        self._selector.register(_output(worker), selectors.EVENT_READ, worker)
        worker.give(job)

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._selector.unregister(_output(worker))

    def _finished(self) -> Iterator[tuple[_Worker, SeedResult]]:
        for key, _ in self._selector.select(_LOOKS_EVERY_S):
            yield key.data, key.data.take()
        for worker in list(self._workers):
            if wall_clock() - worker.since_s > self._limit_s:
                yield worker, worker.hung(self._limit_s)


def _output(worker: _Worker) -> Any:
    return worker.process.stdout
