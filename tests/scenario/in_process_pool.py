"""A campaign's pool without processes, for tests that have loaded vLLM already."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from faults.campaign.executor import MakeJob
from faults.campaign.result import SeedResult
from faults.campaign.worker import run_job


class InProcessPool:
    """Runs one seed after another, here."""

    def __init__(self, jobs: int = 1, limit_s: float = 0.0) -> None:
        """As Pool; nothing of it matters."""

    def __enter__(self) -> InProcessPool:
        """There is nothing to start."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """There is nothing to end."""

    def run(self, seeds: Iterator[int], make_job: MakeJob) -> Generator[SeedResult, None, None]:
        yield from (run_job(make_job(seed)) for seed in seeds)
