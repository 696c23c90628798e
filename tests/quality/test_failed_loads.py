"""Failed loads: what vLLM drops is no violation, and what it does not drop is one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from vllm.v1.core.sched.scheduler import Scheduler

from sim.engine.options import EngineOptions
from sim.engine.timing import StepTimes
from sim.fabric.verdicts import WorkRequestItem
from sim.outcome import Outcome
from sim.router.options import Hold, RouterOptions
from sim.run import TestBed, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.verdict import Fail, Verdict
from sim.workload import Segment


class FirstFails:
    """The first transfer fails, and with it everything that follows on its queue pair."""

    def __init__(self) -> None:
        self._is_first = True

    def judge(self, item: Any) -> Verdict | None:
        if isinstance(item, WorkRequestItem) and self._is_first:
            self._is_first = False
            return Fail("RETRY_EXC", "")
        return None


class EachFails:
    """Every transfer fails."""

    def judge(self, item: Any) -> Verdict | None:
        return Fail("RETRY_EXC", "") if isinstance(item, WorkRequestItem) else None


def with_shared_blocks(check: str, seed: int | None = None, **options: Any) -> Scenario:
    """Three requests that arrive together and share six blocks; a seed shuffles events."""
    requests = tuple(
        InlineRequest(f"req-{i}", (Segment(0, 96), Segment(1 + i, 20 + i)), max_tokens=4)
        for i in range(3)
    )
    return Scenario(
        workload=InlineWorkload(requests),
        engine=EngineOptions(**options),
        check=check,  # type: ignore[arg-type]
        quiet_phase_s=0.0,
        seed=seed or 0,
        perturb=seed is not None,
    )


def outcome_of(scenario: Scenario, verdicts: FirstFails | EachFails) -> Outcome:
    def prepare(bed: TestBed) -> None:
        bed.world.fabric.verdicts.add(verdicts)

    return run(scenario, prepare=prepare).outcome


def outcome_with_failed_loads(check: str, seed: int | None = None, **options: Any) -> Outcome:
    return outcome_of(with_shared_blocks(check, seed, **options), FirstFails())


def oracles_of(outcome: Outcome) -> set[str]:
    """Which oracles fired; blocks may still be waiting for their release."""
    return {v.oracle for v in outcome.violations} - {"leak", "release-once"}


@pytest.mark.parametrize("check", ["incremental", "full"])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_failed_request_has_not_used_what_was_not_loaded(
    check: str, async_scheduling: bool
) -> None:
    """Not even in the step that was under way when the scheduler heard of the failure."""
    outcome = outcome_with_failed_loads(check, async_scheduling=async_scheduling)
    assert oracles_of(outcome) == set()
    assert outcome.requests["error"] == 3


@pytest.mark.parametrize("check", ["incremental", "full"])
def test_a_request_that_was_given_blocks_as_hits_drops_what_was_not_loaded(check: str) -> None:
    """It comes to the consumer during the step whose load fails, and is scheduled ahead. This
    connector reports no blocks for it but those that it was to load itself."""
    after_all = InlineRequest("req-3", (Segment(9, 20),), max_tokens=1, arrival_s=0.1)
    scenario = with_shared_blocks(check, async_scheduling=True)
    scenario = replace(
        scenario,
        workload=InlineWorkload((*scenario.workload.requests, after_all)),
        connector="hybrid",
        extra_config={"load_mode": "sync"},
        router=RouterOptions(holds=(Hold("req-2", 0.002),)),
    )
    outcome = outcome_of(scenario, EachFails())
    assert oracles_of(outcome) == set()
    assert outcome.requests["error"] == 4


@pytest.mark.parametrize("check", ["incremental", "full"])
def test_shared_blocks_are_computed_once_and_right_for_all(check: str) -> None:
    """One request recomputes them; the others attend to them in the same step."""
    outcome = outcome_with_failed_loads(
        check, async_scheduling=False, kv_load_failure_policy="recompute"
    )
    assert oracles_of(outcome) == set()
    assert outcome.requests["length"] == 3


@pytest.mark.parametrize("seed", range(4))
def test_a_pass_that_ends_before_the_connector_speaks_is_judged_by_what_it_says(seed: int) -> None:
    """Passes take no time here, and threads are switched before the failure is reported."""
    no_time = StepTimes(
        host_us=0, base_us=0, prefill_us_per_token=0, decode_us_per_request=0, zero_us_per_block=0
    )
    outcome = outcome_with_failed_loads(
        "incremental", seed=seed, async_scheduling=False, step_times=no_time
    )
    assert oracles_of(outcome) == set()
    assert outcome.requests["error"] == 3


def drop_output_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a preemption does in vLLM 0.33.0, and taking back tokens of a failed load does not."""
    original = Scheduler._update_requests_with_invalid_blocks

    def update(self: Any, requests: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        listed = list(requests)
        result = original(self, listed, *args, **kwargs)
        for request in listed:
            if request.request_id in result[0]:
                request.drop_stale_output = True
                request.num_stale_output_tokens = request.num_in_flight_tokens
                request.num_output_placeholders = 0
        return result

    monkeypatch.setattr(Scheduler, "_update_requests_with_invalid_blocks", update)


@pytest.mark.parametrize("check", ["incremental", "full"])
@pytest.mark.parametrize("is_mended", [False, True])
def test_a_token_computed_from_what_was_not_loaded_is_noticed(
    check: str, is_mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With asynchronous scheduling vLLM delivers the token of the step under way to the client;
    a scheduler that drops it is clean."""
    if is_mended:
        drop_output_under_way(monkeypatch)
    outcome = outcome_with_failed_loads(
        check, async_scheduling=True, kv_load_failure_policy="recompute"
    )
    assert oracles_of(outcome) == (set() if is_mended else {"same-output"})
    assert outcome.requests["length"] == 3


def speculating(num_drafts: int, output: int, **settings: str) -> Scenario:
    """One request whose load fails with drafts under way, and is taken back."""
    request = InlineRequest("req-0", (Segment(0, 200),), output)
    scenario = Scenario(model="deepseek-mla", workload=InlineWorkload((request,)))
    return with_settings(
        scenario,
        {
            "speculation.method": "mtp",
            "num_speculative_tokens": str(num_drafts),
            "kv_load_failure_policy": "recompute",
            "quiet_phase_s": "0",
            **settings,
        },
    )


def fail_first_read(bed: TestBed) -> None:
    bed.world.fabric.verdicts.add(FirstFails())


@pytest.mark.parametrize("is_mended", [False, True])
@pytest.mark.parametrize("num_drafts", [1, 3])
@pytest.mark.parametrize("output", [4, 20])
def test_drafts_that_are_counted_and_dropped_become_wrong_tokens(
    num_drafts: int, output: int, is_mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's scheduler goes on counting drafts of the pass under way and schedules tokens that
    nobody has; one that drops them is clean, and so is synchronous scheduling."""
    if is_mended:
        drop_output_under_way(monkeypatch)
    outcome = run(speculating(num_drafts, output), prepare=fail_first_read).outcome
    assert oracles_of(outcome) == (set() if is_mended else {"same-output"})
    assert outcome.requests["length"] == 1


def test_drafts_of_a_load_that_is_taken_back_are_right_with_synchronous_scheduling() -> None:
    """No pass is under way when the scheduler hears of the failure."""
    scenario = speculating(1, 4, async_scheduling="false")
    outcome = run(scenario, prepare=fail_first_read).outcome
    assert oracles_of(outcome) == set()
    assert outcome.requests["length"] == 1
