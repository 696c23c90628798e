from __future__ import annotations

from pathlib import Path

import pytest

from faults.bench import growth
from faults.bench.scenarios import (
    DECODE,
    FAULTED,
    FAULTED_GLM,
    GROWTH,
    GROWTH_PROMPTS,
    STANDARD,
    TIMEOUTS,
    TRACE_HOUR,
    fixed_scenario,
    with_requests,
    with_workload,
)
from faults.bench.table import Effort, measured, timeout_figures
from faults.running import run
from sim.run import rehearse


def test_growth_with_engines_tells_the_quiet_phase_apart() -> None:
    """One more request for each way from a producer to a consumer: two of each have four."""
    one, two = growth.with_more_engines(fixed_scenario(GROWTH), (1, 2))
    assert (one["requests"], two["requests"]) == (10, 20)
    assert one["verdict"] == two["verdict"] == "pass"
    assert 3 < two["quiet_events"] / one["quiet_events"] < 5
    assert min(point["ms_per_producer"] for point in (one, two)) > 0


def test_growth_with_prompts_tells_the_cost_of_a_token() -> None:
    """Beyond the first size, of which a part does not grow."""
    scenario = with_requests(fixed_scenario(GROWTH_PROMPTS), 2)
    short, long = growth.with_longer_prompts(scenario, (64, 4_096))
    assert (short["prompt_tokens"], long["prompt_tokens"]) == (64, 4_096)
    assert "us_per_token" not in short
    assert long["us_per_token"] > 0
    assert short["verdict"] == long["verdict"] == "pass"


def test_a_step_of_eight_is_what_longer_answers_add() -> None:
    """Sixteen more tokens for each of eight requests together are sixteen more steps or a few more,
    since both engines' count."""
    scenario = with_workload(fixed_scenario(DECODE), output_tokens=(32, 32))
    figures = growth.step_of_eight(scenario, 1)
    assert figures["verdict"] == "pass"
    assert 16 <= figures["steps_of_eight"] < 64


def test_the_wait_for_a_dead_peer_is_passed_over_through_both_connectors() -> None:
    """The second request waits for its time-outs, which is most of the run's time."""
    figures = timeout_figures(with_requests(fixed_scenario(TIMEOUTS), 2))
    assert set(figures) == {"moriio", "hybrid"}
    assert all(found["virtual_s"] > 70 for found in figures.values())


@pytest.mark.parametrize("name", [FAULTED, FAULTED_GLM])
def test_the_standard_scenario_survives_what_happens_in_it(name: str) -> None:
    """Each of its faults strikes once; all is served, or the figure would be of less."""
    scenario = fixed_scenario(name)
    assert scenario.workload == fixed_scenario(STANDARD).workload
    rehearse(scenario)
    done = run(scenario)
    assert [report.hits for report in done.faults] == [1, 1, 1]
    assert done.result.outcome.verdict == "pass"
    assert done.result.outcome.requests == {"total": 8, "length": 8, "unfinished": 0}


def test_an_hour_of_a_trace_can_be_cut_short(tmp_path: Path) -> None:
    """To its first requests, through all eight engines."""
    trace = tmp_path / "trace.jsonl"
    line = '{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n'
    trace.write_text(line * 5)
    figures = measured(TRACE_HOUR, Effort(trace=trace, trace_requests=2))
    assert (figures["requests"], figures["verdict"]) == (2, "pass")
