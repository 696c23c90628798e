"""What a campaign asks of whatever runs its seeds: worker processes here, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Protocol

from faults.campaign.result import SeedResult
from faults.campaign.worker import Job
from sim.stopwatch import wall_clock

MakeJob = Callable[[int], Job]


class Executor(Protocol):
    """Runs seeds, several at a time. Entering and leaving it starts and ends what that takes."""

    def run(self, seeds: Iterator[int], make_job: MakeJob) -> Generator[SeedResult, None, None]:
        """Results as they come, until ``seeds`` ends.

        A seed is taken, and its job made, when there is somebody to run it. One whose process
        dies or hangs has an error as its result, and the others go on. Closing the iterator ends
        those at work.
        """


def lost(seed: int, detail: str, since_s: float) -> SeedResult:
    """The result of a seed that was begun at ``since_s`` and has no answer."""
    wall_s = wall_clock() - since_s
    return SeedResult(seed=seed, status="error", detail=detail, wall_s=wall_s)
