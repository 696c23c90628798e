"""The connector under faults: each costs at most its own request, and nothing wrong is served."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from variants import alone

from faults.kinds import KINDS
from faults.running import run
from faults.schedule import parse
from sim.model.presets import PRESETS
from sim.outcome import Outcome
from sim.probes import Probe
from sim.scenario import Scenario, with_settings

# What breaks the library's promise that success means bytes in place; only a digest could tell.
BEYOND_NOTICE = {"corrupt-bytes", "early-completion"}
# An engine that is configured unlike the others, or that does not start, is not served from.
OF_START_UP = {"disagreement", "registration-fails"}
LONG = {"completion-lost", "silent-queue-pair", "late-landing", "send-queue-full", "never-answers"}
SETTINGS = {
    "connector": "hybrid",
    "extra_config": "{defer_timeout: 3, transfer_timeout: 4, fence_timeout: 25}",
    "quiet_phase_s": "60",
}
TEXTS = {"crash": "crash:node=d0,at_s=0.05", "small-pool": "small-pool:for_s=1"}  # not for ever


def outcome_of(model: str, fault: str, policy: str, probe: Probe | None = None) -> Outcome:
    scenario = with_settings(
        Scenario(model=model, workload=alone(PRESETS[model])),
        {**SETTINGS, "kv_load_failure_policy": policy},
    )
    faults: list[Any] = [msgspec.to_builtins(parse(TEXTS.get(fault, fault)))]
    result = run(msgspec.structs.replace(scenario, faults=faults), probe=probe)
    return result.result.outcome


def _kinds() -> list[Any]:
    chosen = sorted(set(KINDS) - BEYOND_NOTICE - OF_START_UP)
    return [pytest.param(kind, marks=[pytest.mark.soak] if kind in LONG else []) for kind in chosen]


@pytest.mark.requirement("R14", "R16", "R17", "S6")
@pytest.mark.parametrize("kind", _kinds())
def test_a_fault_breaks_no_rule(kind: str) -> None:
    """On a hybrid model: no wrong byte, no leak, no request without an end."""
    outcome = outcome_of("kimi-linear", kind, "recompute")
    assert outcome.violations == []
    assert outcome.requests["unfinished"] == 0


class Loads(Probe):
    """Counts loads that were reported, by whether they failed."""

    def __init__(self) -> None:
        self.ended = {True: 0, False: 0}

    def receiving_finished(self, node: str, rank: int, request_id: str, *, failed: bool) -> None:
        self.ended[failed] += 1


@pytest.mark.requirement("R16")
def test_a_broken_connection_costs_no_request_and_is_replaced() -> None:
    """The load that notices is read once more, through new queue pairs."""
    loads = Loads()
    outcome = outcome_of("llama", "completion-error", "fail", loads)
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"] == 6
    assert loads.ended[True] == 0
    assert loads.ended[False] >= 6


@pytest.mark.requirement("R10", "S4")
@pytest.mark.parametrize("wrong", ["foreign-blocks", "short-blocks", "no-blocks", "stale-engine"])
def test_wrong_parameters_cost_at_most_their_request(wrong: str) -> None:
    """Blocks that are not the hold's are noticed although the hold itself is there."""
    outcome = outcome_of("llama", f"wrong-params:wrong={wrong}", "fail")
    assert outcome.violations == []
    assert outcome.requests["length"] >= 5
