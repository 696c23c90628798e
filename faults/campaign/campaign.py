"""Runs a campaign: hands seeds to workers, keeps results, and says what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from faults.campaign.pool import Pool
from faults.campaign.result import SeedResult, summarize
from faults.campaign.store import Store
from faults.campaign.swarm import SwarmOptions
from faults.campaign.worker import Job
from sim.stopwatch import wall_clock

OnResult = Callable[[SeedResult], None]


class Campaign:
    """All runs of some seeds with the same options."""

    def __init__(self, options: SwarmOptions, store: Store, known: list[str]) -> None:
        self.options = options
        self.store = store
        self.known = known
        self.interrupted = False
        self._seeds = range(0)
        self._seen: dict[str, None] = {}
        self._begin_s = wall_clock()

    def run(self, pool: Pool, seeds: range, budget_s: float | None, on_result: OnResult) -> None:
        """Run what is not done yet, until the seeds, the time or the user's patience end."""
        self._seeds = seeds
        for result in self.store.results:
            self._note(result)
        results = pool.run(self._to_do(seeds, budget_s), self._job)
        try:
            for result in results:
                self._note(result)
                self.store.add(result)
                on_result(result)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            results.close()

    def document(self) -> dict[str, Any]:
        """What came of it so far."""
        wall_s = wall_clock() - self._begin_s
        summary = summarize(
            self.store.results, self.known, wall_s=wall_s, interrupted=self.interrupted
        )
        return {
            **summary,
            "not_run": len(set(self._seeds) - {result.seed for result in self.store.results}),
        }

    def _to_do(self, seeds: range, budget_s: float | None) -> Iterator[int]:
        done = self.store.done()
        for seed in seeds:
            if budget_s is not None and wall_clock() - self._begin_s > budget_s:
                return
            if seed not in done:
                yield seed

    def _job(self, seed: int) -> Job:
        return Job(seed, self.options, self.store.failures, list(self._seen))

    def _note(self, result: SeedResult) -> None:
        self._seen.update(dict.fromkeys(failure.group for failure in result.failures))
