from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import msgspec
import pytest

from faults.bench.connectors import COMPARED, UPSTREAM
from faults.bench.paths import Label, Paths, by_path
from faults.bench.scenarios import CONNECTORS, fixed_scenario, with_requests
from sim.guest.stopwatch import Interval
from sim.run import TestBed, rehearse, run
from sim.scenario import Scenario


def scenario_of(column: str) -> Scenario:
    few = with_requests(fixed_scenario(CONNECTORS), 3)
    connector, settings = COMPARED[column]
    return msgspec.structs.replace(few, connector=connector, extra_config=settings)


class Profiled(Paths):
    """Notes calls of the simulator's code within intervals, apart from those that end one, and
    from what a library asks the simulator on its own when a connector logs."""

    def __init__(self) -> None:
        super().__init__()
        self.strays: Counter[str] = Counter()

    def forget(self) -> None:
        super().forget()
        self.strays.clear()

    @contextmanager
    def _watch(self, bed: TestBed) -> Iterator[None]:
        with super()._watch(bed):
            sys.setprofile(self._note)
            try:
                yield
            finally:
                sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call" or self.stopwatch.label is None:
            return
        module, name = str(frame.f_globals.get("__name__", "")), frame.f_code.co_qualname
        is_own = module == "sim.guest.stopwatch" or name == "Thread.run"
        callers = [back := frame.f_back, back and back.f_back]  # Ray wraps what makes records
        is_log = "logging" in [each.f_globals.get("__name__") for each in callers if each]
        if module.startswith("sim.") and not is_own and not is_log:
            self.strays[f"{module}:{name}"] += 1


@pytest.mark.parametrize("connector", [UPSTREAM, "hybrid"])
def test_no_interval_contains_the_simulator(connector: str) -> None:
    """Else a connector would pay for what stands in for its libraries."""
    scenario = scenario_of(connector)
    rehearse(scenario)
    paths = Profiled()
    paths.measure(scenario)
    assert len(paths.intervals) > 100
    assert not paths.strays


@pytest.mark.parametrize("connector", COMPARED)
def test_runs_are_the_same_with_and_without_a_stopwatch(connector: str) -> None:
    """Each run has the same intervals, and the stopwatch leaves nothing behind."""
    scenario = scenario_of(connector)
    plain = run(scenario).outcome.event_hash
    first, second = Paths(), Paths()
    assert first.measure(scenario) == second.measure(scenario) == 2
    assert [each[::2] for each in first.intervals] == [each[::2] for each in second.intervals]
    assert {plain, first.event_hash, run(scenario).outcome.event_hash} == {plain}


def test_what_precedes_a_read_is_posting_and_what_follows_the_last_is_not() -> None:
    """On the rank that reads; whatever runs on the other side is in nobody's way."""
    intervals = [
        Interval(Label("planning", "d0/core/main", 0), 1, ""),
        Interval(Label("step", "d0/rank0/worker", 1), 10, ""),
        Interval(Label("thread", "d0/rank0/loader", 2), 7000, "Socket.send"),
        Interval(Label("order", "d0/rank0/worker", 3), 100, ""),
        Interval(Label("thread", "d0/rank0/loader", 2), 200, "Session.batch_read"),
        Interval(Label("thread", "d0/rank0/loader", 2), 400, "Session.batch_read"),
        Interval(Label("thread", "d0/rank0/loader", 2), 1000, "Socket.send"),
        Interval(Label("thread", "p0/rank0/listener", 4), 2000, "Socket.recv"),
        Interval(Label("rest", "d0/rank0/worker", 5), 4000, ""),
    ]
    assert by_path(intervals) == {"planning_us": 1, "posting_us": 710, "rest_us": 14000}
