"""Passing over empty engine steps changes nothing but the time that a run takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from faults.campaign.swarm import SwarmOptions, scenario_of
from faults.running import run
from sim.probes import Probe, StepTimes
from sim.scenario import GeneratedWorkload, Scenario, with_settings

# Long enough for the time-outs to strike, short enough to step through.
SEEDS = 8
TIME_OUTS = {"defer_timeout": 1.0, "transfer_timeout": 1.5}


class StepsRun(Probe):
    """How many steps really took place."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def step_done(self, step: StepTimes) -> None:
        self.of[step.node] += 1


def history_of(scenario: Scenario, *, skip: bool) -> tuple[dict[str, Any], Counter[str]]:
    """With the steps of each engine that really took place."""
    steps = StepsRun()
    scenario = msgspec.structs.replace(scenario, skip_empty_steps=skip)
    outcome = run(scenario, probe=steps).result.outcome
    return {
        "hash": outcome.event_hash,
        "events": outcome.events,
        "steps": outcome.engine_steps,
        "virtual_s": outcome.virtual_s,
        "requests": outcome.requests,
        "violations": outcome.violations,
        "notes": outcome.notes,
    }, steps.of


def steps_of_equal_runs(scenario: Scenario, what: str = "") -> tuple[Counter[str], Counter[str]]:
    """The steps of each engine that really took place, when empty ones are passed over and when
    they are not, which changes nothing else; ``what`` names the scenario."""
    skipping, some = history_of(scenario, skip=True)
    stepping, all_of_them = history_of(scenario, skip=False)
    assert skipping == stepping, what
    assert all_of_them.total() == stepping["steps"], what
    return some, all_of_them


def share_of_steps_run(scenario: Scenario) -> float:
    """How many of all steps really take place when empty ones are passed over."""
    some, all_of_them = steps_of_equal_runs(scenario)
    return some.total() / all_of_them.total()


def drawn(seed: int, connector: str) -> Scenario:
    """As in a campaign: presets, executors, scheduling, perturbation and faults by seed."""
    models: tuple[str, ...] = ("llama", "deepseek-mla", "kimi-linear", "gemma-swa")
    if connector == "moriio":
        models = models[:3]  # it does not start with windows where it writes
    options = SwarmOptions(connector=connector, models=models, quiet_phase_s=2.5)
    scenario = scenario_of(seed, options)
    time_outs = {**scenario.extra_config, **TIME_OUTS}
    return msgspec.structs.replace(scenario, extra_config=time_outs, max_virtual_s=6.0)


@pytest.mark.parametrize("connector", ["moriio", "hybrid"])
def test_drawn_scenarios_have_the_same_history(connector: str) -> None:
    """Same hash, violations and counts; and a good part of the steps was really left out."""
    run_steps = all_steps = 0
    for seed in range(SEEDS):
        some, of_all = steps_of_equal_runs(drawn(seed, connector), f"seed {seed}")
        run_steps += some.total()
        all_steps += of_all.total()
    assert run_steps < 0.75 * all_steps


@pytest.mark.parametrize(
    "fault", ["control-plane-silent", "message-dropped", "completion-lost", "hand-off-lost"]
)
def test_a_thread_that_polls_its_queue_has_the_same_history(fault: str) -> None:
    """MoRIIO's writer looks into its queue every ten milliseconds, for as long as it lives."""
    scenario = with_settings(
        Scenario(
            connector="moriio",
            workload=GeneratedWorkload(requests=6, length_scale=0.05, rate_rps=40),
            extra_config={"read_mode": "false", "defer_timeout": 1.0},
            faults=({"kind": fault, "when": {"phase": "queued_at_d"}},),
            quiet_phase_s=2.0,
            max_virtual_s=6.0,
        ),
        {"perturb": "true"},
    )
    assert share_of_steps_run(scenario) < 0.75


def test_steps_of_others_are_known_while_a_loader_asks_again() -> None:
    """The loader's thread looks after 1 to 50 ms; steps of an engine that it does not talk to are
    recorded, and hardly any runs."""
    scenario = with_settings(
        Scenario(
            connector="hybrid",
            workload=GeneratedWorkload(requests=6, length_scale=0.05, rate_rps=40),
            extra_config={"transfer_timeout": 2.0, "defer_timeout": 3.0},
            faults=(
                {
                    "kind": "partition",
                    "when": {"at_s": 0.05},
                    "target": {"node": "p0", "peer": "d0"},
                    "for_s": 2.5,
                },
            ),
            quiet_phase_s=2.0,
            max_virtual_s=6.0,
        ),
        {"topology.producers": "2"},
    )
    some, all_of_them = steps_of_equal_runs(scenario)
    assert some["p1"] < 0.1 * some["d0"] < 0.1 * all_of_them["d0"]


def test_a_thread_that_sleeps_until_a_flag_is_set_has_the_same_history() -> None:
    """MoRIIO's producer, inside a step, waits for a consumer that nonsense has made deaf."""
    nonsense = [
        {"kind": "malformed-message", "content": "random", "when": {"phase": "queued_at_p"}},
        {"kind": "malformed-message", "content": "nested", "when": {"phase": "handshake"}},
    ]
    scenario = Scenario(
        seed=89,
        connector="moriio",
        workload=GeneratedWorkload(requests=6, length_scale=0.05, rate_rps=40),
        extra_config={"read_mode": "false", "transfer_timeout": 3.0},
        faults=tuple(nonsense),
        quiet_phase_s=2.0,
        max_virtual_s=6.0,
    )
    assert share_of_steps_run(scenario) < 0.75


@pytest.mark.parametrize("executor", ["single-process", "multi-process"])
@pytest.mark.parametrize("connector", ["moriio", "hybrid"])
def test_ranks_in_lock_step_have_the_same_history(connector: str, executor: str) -> None:
    """A data-parallel rank that holds blocks for nobody, while the others have stopped."""
    settings = {"engine.data_parallel_size": "2", "executor": executor, "perturb": "true"}
    scenario = with_settings(
        Scenario(
            model="deepseek-mla",
            connector=connector,
            workload=GeneratedWorkload(requests=4, length_scale=0.05, rate_rps=40),
            extra_config=TIME_OUTS,
            faults=({"kind": "hand-off-lost", "when": {"at_s": 0.0}, "count": 2},),
            quiet_phase_s=2.0,
        ),
        settings,
    )
    assert share_of_steps_run(scenario) < 1
