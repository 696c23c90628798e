"""Processor time of a connector's two paths that are in every request's way, and of the rest.

*Planning* is everything that vLLM's schedulers call. *Posting* is, on the worker's side, what is
called for each step, and all that the reading rank does from its order to its last read. The *rest*
comes after the last read or beside the request: waiting for completions, confirming, releasing,
holding, reporting, counting.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

from sim.guest.stopwatch import Interval, Stopwatch
from sim.probes import Probe
from sim.run import TestBed, rehearse, run
from sim.scenario import Scenario
from sim.units import MS

_PLANNING = (
    "on_new_request",
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "get_loaded_kv_cache_group_ids",
    "build_connector_meta",
    "request_finished",
    "request_finished_all_groups",
    "update_connector_output",
)
_STEP = "start_load_kv"
_REPORTING = (
    "wait_for_save",
    "get_transfer_results",
    "get_block_ids_with_load_errors",
    "build_connector_worker_meta",
    "get_kv_connector_stats",
)
_LOADS = ("reqs_to_recv", "loads")  # where the metadata of MoRIIO's and of ours has them
_FROM_NS = 45 * MS  # the first request, for which engines get to know each other, does not count


class Label(NamedTuple):
    """What runs: ``kind`` is ``planning``, ``order``, ``step``, ``rest`` or ``thread``."""

    kind: str
    engine: str
    call: int


class Paths(Probe):
    """The intervals of one run, which has to be rehearsed."""

    def __init__(self) -> None:
        self.stopwatch: Stopwatch[Label] = Stopwatch()
        self._calls = count()
        self.event_hash = ""

    @property
    def intervals(self) -> list[Interval[Label]]:
        return self.stopwatch.intervals

    def measure(self, scenario: Scenario) -> int:
        """Run ``scenario``; the number of requests that the intervals are of, all but the first."""
        gc.disable()  # it comes when it comes, and is nobody's
        try:
            with self._watching_engines():
                outcome = run(scenario, probe=self, watch=self._watch).outcome
        finally:
            gc.enable()
        self.event_hash = outcome.event_hash
        return int(outcome.requests["total"]) - 1

    def workload_began(self) -> None:
        self._kernel.call_later(_FROM_NS, self.forget)

    def forget(self) -> None:
        """What has been measured so far."""
        self.intervals.clear()

    # ---------------------------------------------------------------- internal

    @contextmanager
    def _watch(self, bed: TestBed) -> Iterator[None]:
        self._kernel = bed.kernel
        with self.stopwatch.watching(bed.world.facades, lambda: self._label("thread")):
            yield

    @contextmanager
    def _watching_engines(self) -> Iterator[None]:
        create = KVConnectorFactory.create_connector

        def create_timed(*args: Any, **kwargs: Any) -> Any:
            connector = create(*args, **kwargs)
            self._time(connector)
            return connector

        KVConnectorFactory.create_connector = create_timed
        try:
            yield
        finally:
            KVConnectorFactory.create_connector = create

    def _time(self, connector: Any) -> None:
        def label_of_step() -> Label:
            metadata = connector._connector_metadata
            loads = any(getattr(metadata, name, None) for name in _LOADS)
            return self._label("order" if loads else "step")

        def times(names: tuple[str, ...], kind: str) -> None:
            for name in names:
                hook = self.stopwatch.timed(getattr(connector, name), lambda: self._label(kind))
                setattr(connector, name, hook)

        times(_PLANNING, "planning")
        times(_REPORTING, "rest")
        setattr(connector, _STEP, self.stopwatch.timed(getattr(connector, _STEP), label_of_step))

    def _label(self, kind: str) -> Label:
        task = self._kernel.require_task("a hook")
        return Label(kind, task.path, next(self._calls))


class Least:
    """The least that each interval of ``scenario`` took in some runs."""

    def __init__(self, scenario: Scenario) -> None:
        rehearse(scenario)
        self._scenario = scenario
        self._requests = 0
        self.intervals: list[Interval[Label]] = []

    def run(self) -> None:
        paths = Paths()
        self._requests = paths.measure(self._scenario)
        known = self.intervals or paths.intervals
        self.intervals = [_less(*both) for both in zip(known, paths.intervals, strict=True)]

    def us_per_request(self) -> dict[str, float]:
        """Microseconds of both engines, by path."""
        return {path: ns / self._requests / 1e3 for path, ns in by_path(self.intervals).items()}


def _less(a: Interval[Label], b: Interval[Label]) -> Interval[Label]:
    assert (a.label, a.until) == (b.label, b.until), "two runs of one scenario went apart"
    return a if a.ns <= b.ns else b


def by_path(intervals: list[Interval[Label]]) -> dict[str, int]:
    """Nanoseconds of each path.

    What the consumer does from an order on is posting if a read follows, and rest otherwise.
    """
    found: Counter[str] = Counter(planning_us=0, posting_us=0, rest_us=0)
    since_read, order = 0, None
    for (kind, engine, call), ns, until in intervals:
        if kind == "planning":
            found["planning_us"] += ns
        elif kind == "step":
            found["posting_us"] += ns
        elif kind == "rest" or not engine.startswith("d"):
            found["rest_us"] += ns
        else:
            if kind == "order" and call != order:
                order = call
                found["rest_us"] += since_read
                since_read = 0
            since_read += ns
            if until.endswith("batch_read"):
                found["posting_us"] += since_read
                since_read = 0
    found["rest_us"] += since_read
    return dict(found)
