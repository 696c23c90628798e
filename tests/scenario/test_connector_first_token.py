"""What a confirmed read adds to the time to the first token, in virtual time.

`pytest -s` prints the table that docs/performance.md has.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from faults.running import run
from faults.schedule import with_faults
from sim.probes import Probe, StepTimes
from sim.scenario import Scenario, UniformWorkload, with_settings
from sim.units import MS, US

LATENCY_US = 50
REQUESTS = 6
SCENARIO = Scenario(
    workload=UniformWorkload(
        requests=REQUESTS, prompt_tokens=(260, 510), output_tokens=(1, 1), interval_ms=120.0
    ),
    network_latency_us=LATENCY_US,
)
PLAIN_STEPS = {
    "max_num_batched_tokens": "512",
    "enable_chunked_prefill": "false",
    "async_scheduling": "false",
}
"""One prompt a step, which ends before the next is scheduled."""
PACES = {"as usual": 1, "busy": 28}
"""How many times as long as usual a producer's steps take."""
LOADS = {"async": "{}", "sync": "{load_mode: sync}"}
ADDED_MS = {"async": 3.2, "sync": 1.2}
"""At most, to MoRIIO's time to the first token. An asynchronous load is taken up by the step after
the one that hears of it."""


@dataclass
class Watch(Probe):
    """Times of requests, of the producer's steps, and of questions until they are answered."""

    kernel: Any = None
    began_ns: dict[str, int] = field(default_factory=dict)
    ended_ns: dict[str, int] = field(default_factory=dict)
    steps: list[StepTimes] = field(default_factory=list)
    asked_ns: dict[str, int] = field(default_factory=dict)
    answered_ns: dict[str, int] = field(default_factory=dict)

    def engine_started(self, engine: Any) -> None:
        self.kernel = engine.kernel

    def request_started(self, request_id: str) -> None:
        self.began_ns[request_id] = self.kernel.now_ns

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        assert outcome == "length"
        self.ended_ns[request_id] = self.kernel.now_ns

    def step_done(self, step: StepTimes) -> None:
        if step.node == "p0":
            self.steps.append(step)

    def hear(self, record: logging.LogRecord) -> None:
        event = json.loads(record.getMessage())
        if event["event"] != "load-moved" or not event["request"].startswith("req-"):
            return
        times = {"SUCCEEDED": self.asked_ns, "HELD": self.answered_ns}.get(event["because"])
        if times is not None and self.kernel is not None:
            times[event["request"]] = self.kernel.now_ns

    def first_tokens_ns(self) -> list[int]:
        """From each request's arrival to its only token."""
        return [self.ended_ns[r] - self.began_ns[r] for r in self.ended_ns if r.startswith("req-")]

    def questions_ns(self) -> list[int]:
        """From each last read to the answer that counts."""
        return [self.answered_ns[request] - asked for request, asked in self.asked_ns.items()]

    def step_under_way(self, at_ns: int) -> int:
        """How long the producer's step takes during which something happens; 0 if none is."""
        return next((s.duration_ns for s in self.steps if s.start_ns <= at_ns < s.end_ns), 0)


def watch(connector: str, pace: str, load_mode: str) -> Watch:
    settings = {"connector": connector, "extra_config": LOADS[load_mode], **PLAIN_STEPS}
    slow = f"slow-steps:node=p0,factor={PACES[pace]},for_s=null"
    return watched(with_settings(SCENARIO, settings), [slow] if PACES[pace] != 1 else [])


def watched(scenario: Scenario, faults: list[str]) -> Watch:
    seen = Watch()
    handler = logging.Handler()
    handler.emit = seen.hear  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.hybrid_read")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    outcome = run(with_faults(scenario, faults), probe=seen).result.outcome
    logger.setLevel(level)
    logger.removeHandler(handler)
    assert outcome.violations == []
    return seen


@pytest.mark.requirement("S3")
def test_the_first_token_does_not_wait_for_the_producers_scheduler() -> None:
    """The question takes two ways of the network, though the producer is in the middle of a step
    of 200 to 500 ms when it is asked; and what is added to MoRIIO's time to the first token is the
    same whatever the producer's steps take."""
    for pace in PACES:
        theirs = watch("moriio", pace, "sync").first_tokens_ns()
        for load_mode in LOADS:
            seen = watch("hybrid", pace, load_mode)
            ours = seen.first_tokens_ns()
            added = [mine - other for mine, other in zip(ours, theirs, strict=True)]
            steps = [seen.step_under_way(at_ns) for at_ns in seen.asked_ns.values()][:-1]
            questions = seen.questions_ns()
            figures = " | ".join(_range(times) for times in (steps, theirs, added, questions))
            print(f"| {load_mode} | {pace} | {figures} |")
            assert len(questions) == REQUESTS
            assert questions[1:] == [2 * LATENCY_US * US] * (REQUESTS - 1)
            assert questions[0] <= 4 * LATENCY_US * US, "the first one connects as well"
            assert 0 <= min(added) <= max(added) <= ADDED_MS[load_mode] * MS
            if pace == "busy":  # but for the last request, behind which none waits
                assert 200 * MS <= min(steps) <= max(steps) <= 500 * MS


@pytest.mark.requirement("S3")
def test_no_question_waits_for_the_answer_to_another() -> None:
    """Requests that come together are all asked about before the first answer is there, and each
    question takes two ways of the network."""
    settings = {
        "connector": "hybrid",
        "workload.interval_ms": "0",
        "workload.prompt_tokens": "[60, 60]",
        "network_latency_us": "20000",
    }
    seen = watched(with_settings(SCENARIO, settings), [])
    assert len(seen.asked_ns) == REQUESTS
    assert max(seen.asked_ns.values()) < min(seen.answered_ns.values())
    late = max(seen.questions_ns()) - 2 * 20 * MS
    assert 0 <= late <= 2 * 20 * MS, "the first one connects as well"


@pytest.mark.requirement("S3")
def test_a_healthy_read_takes_one_round_trip_more() -> None:
    """The question's: from a producer that is known, and so far away that any other would show."""
    far = {"network_latency_us": "20000", "workload.interval_ms": "500", **PLAIN_STEPS}
    ours, theirs = (
        watched(with_settings(SCENARIO, {"connector": name, **far}), []).first_tokens_ns()
        for name in ("hybrid", "moriio")
    )
    added = [mine - other for mine, other in zip(ours, theirs, strict=True)][1:]
    round_trip = 2 * 20 * MS
    assert round_trip <= min(added) <= max(added) <= round_trip + ADDED_MS["async"] * MS


def _range(times_ns: list[int]) -> str:
    return f"{min(times_ns) / MS:.2f} to {max(times_ns) / MS:.2f}"
