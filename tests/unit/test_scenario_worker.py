from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from faults import Scenario
from faults.scenario_worker import Refusal, ScenarioWorker
from sim.errors import TestbedError

SERVER = """
import json, sys, time
for line in sys.stdin:
    job = json.loads(line)
    seed = job["scenario"].get("seed", 0)
    time.sleep({0: 30, 1: 0}.get(seed, 0.02))
    number = job.get("number", 0) + (7 if seed == 9 else 0)
    refusal = {"type": "Refusal", "usage": True, "message": str(seed)}
    sys.stdout.write(json.dumps([number, refusal]) + chr(10))
    sys.stdout.flush()
"""
"""Answers with the seed; seed 0 takes long, and seed 9's answer is another job's."""


class TooLate(BaseException):
    """As KeyboardInterrupt, no Exception."""


@pytest.fixture
def worker() -> Iterator[ScenarioWorker]:
    worker = ScenarioWorker([sys.executable, "-c", SERVER])
    yield worker
    worker.end()


def said(worker: ScenarioWorker, seed: int) -> str:
    answer = worker.run(Scenario(seed=seed), None)
    assert isinstance(answer, Refusal)
    return answer.message


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def raise_it(*_: Any) -> None:
        raise TooLate

    before = signal.signal(signal.SIGALRM, raise_it)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(TooLate):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_call_after_one_that_was_interrupted_gets_its_own_answer(worker: ScenarioWorker) -> None:
    """At once: the process that still works on the first one has been ended."""
    assert said(worker, 1) == "1"
    interrupted = worker._process
    with interrupted_after(0.05):
        said(worker, 0)
    assert interrupted is not None
    assert interrupted.returncode == -signal.SIGKILL
    assert [said(worker, seed) for seed in (1, 2)] == ["1", "2"]


def test_each_of_several_threads_gets_its_own_answer(worker: ScenarioWorker) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda seed: said(worker, seed), range(10, 26)))
    assert answers == [str(seed) for seed in range(10, 26)]


def test_an_answer_to_another_job_is_never_taken(worker: ScenarioWorker) -> None:
    with pytest.raises(TestbedError, match="answered job 8 instead of 1"):
        said(worker, 9)
    assert said(worker, 1) == "1"
