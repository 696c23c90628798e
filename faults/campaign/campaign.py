"""Runs a campaign: hands seeds to workers, keeps results, and says what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from faults.campaign.canary import sing
from faults.campaign.executor import Executor
from faults.campaign.result import SeedResult, summarize
from faults.campaign.store import Store
from faults.campaign.under_test import SourcesUnderTest
from faults.campaign.vllm_defects import VLLM_DEFECTS
from faults.campaign.worker import Job
from sim.stopwatch import wall_clock

OnResult = Callable[[SeedResult], None]


class Campaign:
    """All runs of the plan of ``store``; groups in ``known``, and vLLM's own, are excused."""

    def __init__(self, store: Store, known: Sequence[str] = ()) -> None:
        self.store = store
        self.known = [*VLLM_DEFECTS, *known]
        self.interrupted = False
        self._sources = SourcesUnderTest(store.plan.options)
        self._seen: dict[str, None] = {}
        self._begin_s = wall_clock()

    def run(self, executor: Executor, budget_s: float | None, on_result: OnResult) -> None:
        """Run what is not done yet, until the seeds, the time or the user's patience end.

        Raises:
            UsageError: the sources under test have changed; what is in the store is of those
                before.
        """
        for result in self.store.results():
            self._note(result)
        results = executor.run(self._to_do(budget_s), self._job)
        try:
            for result in results:
                self._sources.require_unchanged()
                self._note(result)
                self.store.add(result)
                on_result(result)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            results.close()

    def document(self) -> dict[str, Any]:
        """What came of it so far."""
        return summarize(
            self.store.results(),
            self.known,
            seeds=self.store.plan.seeds,
            wall_s=wall_clock() - self._begin_s,
            interrupted=self.interrupted,
            earlier=len(self.store.done),
        )

    def _to_do(self, budget_s: float | None) -> Iterator[int]:
        to_do = (seed for seed in self.store.plan.seeds if seed not in self.store.done)
        for seed in to_do:
            if budget_s is not None and wall_clock() - self._begin_s > budget_s:
                self.store.leave([seed, *to_do])
                return
            yield seed

    def _job(self, seed: int) -> Job:
        return Job(seed, self.store.plan.options, self.store.failures, list(self._seen))

    def _note(self, result: SeedResult) -> None:
        self._seen.update(dict.fromkeys(failure.group for failure in result.failures))


def begin(executor: Executor, *campaigns: Campaign) -> dict[str, Any] | None:
    """Let ``executor`` notice the canary before any seed of ``campaigns``.

    Returns:
        What was noticed; None if Ctrl-C came first, by which all of them are interrupted.

    Raises:
        TestbedError: as ``sing``.
    """
    try:
        return sing(executor)
    except KeyboardInterrupt:
        for campaign in campaigns:
            campaign.interrupted = True
        return None
