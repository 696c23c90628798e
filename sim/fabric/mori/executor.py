"""Posting workers: native threads that post slices of one call at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simpy.events import Event

from sim.fabric.device import Device
from sim.fabric.mori.enums import StatusCode

Outcome = tuple[StatusCode, str] | None
"""Why a slice could not be posted, or None."""


@dataclass(eq=False, slots=True)
class _Job:
    post: Callable[[], Outcome]
    done: Event
    outcome: Outcome = None


class _Worker:
    """One thread; it has no GIL and does its jobs in order."""

    def __init__(self, device: Device, number: int) -> None:
        self._device = device
        self._jobs: deque[_Job] = deque()
        self._wake: Event | None = None
        device.fabric.kernel.spawn(
            device.process, self._work, name=f"rdma-poster-{number}", guest=False, needs_gil=False
        )

    def submit(self, job: _Job) -> None:
        self._jobs.append(job)
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()

    def _work(self) -> None:
        kernel = self._device.fabric.kernel
        while self._device.alive:
            if not self._jobs:
                self._wake = kernel.event()
                kernel.wait(self._wake, what="a slice of a call to post")
            job = self._jobs.popleft()
            job.outcome = job.post()
            job.done.succeed()


class Executor:
    """A fixed number of workers."""

    def __init__(self, device: Device, workers: int) -> None:
        self._kernel = device.fabric.kernel
        self._workers = [_Worker(device, number) for number in range(workers)]

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self._workers)

    def run(self, posts: Sequence[Callable[[], Outcome]]) -> list[Outcome]:
        """Give each worker one of ``posts`` and park until all have been posted or refused."""
        jobs = [_Job(post, self._kernel.event()) for post in posts]
        for worker, job in zip(self._workers, jobs, strict=False):
            worker.submit(job)
        for job in jobs:
            self._kernel.wait(job.done, what="the posting workers")
        return [job.outcome for job in jobs]
