"""Engines that do not fit each other, or that fit in spite of a difference, and late hand-offs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from variants import alone, conversations, edges

from faults.running import run as run_with_faults
from faults.schedule import parse
from sim.model.presets import PRESETS
from sim.outcome import Outcome
from sim.router.ongoing import HandOff
from sim.run import run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.verdict import Corrupt
from sim.workload import Segment

HYBRID = {"connector": "hybrid"}


def with_fault(model: str, fault: str) -> Outcome:
    scenario = with_settings(Scenario(model=model, workload=alone(PRESETS[model])), HYBRID)
    faults: list[Any] = [msgspec.to_builtins(parse(fault))]
    return run_with_faults(msgspec.structs.replace(scenario, faults=faults)).result.outcome


@pytest.mark.requirement("R15")
@pytest.mark.parametrize(
    ("model", "difference"),
    [
        ("llama", "geometry=real"),
        ("llama", "model=deepseek-mla"),
        ("llama", "tp_size=2"),
        ("kimi-linear", "tp_size=2"),
    ],
)
def test_a_peer_with_other_caches_is_not_read_from(model: str, difference: str) -> None:
    """Every request ends with an error; nobody is served from bytes that mean something else, and
    the engines live. What is reported is only that no request can succeed."""
    outcome = with_fault(model, f"disagreement:node=d0,{difference}")
    assert outcome.requests["error"] == outcome.requests["total"]
    assert {violation.oracle for violation in outcome.violations} == {"liveness"}
    assert all("epilogue" in violation.detail for violation in outcome.violations)


@pytest.mark.requirement("R17")
@pytest.mark.parametrize("node", ["p0", "d0"])
def test_a_latent_cache_may_be_read_between_unequal_numbers_of_ranks(node: str) -> None:
    """Every rank holds all of it; each producer rank is released by all of its readers."""
    outcome = with_fault("deepseek-mla", f"disagreement:node={node},tp_size=2")
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]


@pytest.mark.requirement("R3", "R8", "R13", "R14")
@pytest.mark.parametrize("load_mode", ["async", "sync"])
@pytest.mark.parametrize("drafts", ["1", "2"])
@pytest.mark.parametrize("workload", [edges, conversations], ids=lambda w: w.__name__)
def test_glm_is_read_with_its_drafter(load_mode: str, drafts: str, workload: Any) -> None:
    """GLM-5.3-Flash with MTP: states, rings, pooled entries and the drafter's find their places."""
    settings = {
        **HYBRID,
        "extra_config": f"{{load_mode: {load_mode}}}",
        "speculation.method": "mtp",
        "num_speculative_tokens": drafts,
    }
    preset = PRESETS["glm-flash"]
    outcome = run(
        with_settings(Scenario(model="glm-flash", workload=workload(preset)), settings)
    ).outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]


@pytest.mark.requirement("R5")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extra_config": "{transfer_timeuot: 3}"}, "did you mean 'transfer_timeout'"),
        ({"extra_config": "{read_mode: 'false'}"}, "this connector reads only|writes"),
        (
            {"extra_config": "{load_mode: sync}", "kv_load_failure_policy": "recompute"},
            "would answer with a token from a failed load",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_at_start_up(
    settings: dict[str, str], message: str
) -> None:
    """With the key, its value and the remedy."""
    from sim.errors import UsageError

    scenario = with_settings(
        Scenario(model="llama", workload=alone(PRESETS["llama"])), {**HYBRID, **settings}
    )
    with pytest.raises(UsageError, match=message):
        run(scenario)


class Says:
    """The router passes a hand-off on with other values in it."""

    def __init__(self, **values: int) -> None:
        self._values = values

    def judge(self, item: Any) -> Corrupt | None:
        if not isinstance(item, HandOff):
            return None
        return Corrupt(lambda params: {**params, **self._values})


@pytest.mark.requirement("R14", "R15")
@pytest.mark.parametrize("key", ["tp_size", "remote_tp_size"])
def test_a_rank_reads_no_other_ranks_heads_if_the_number_of_ranks_is_wrong(key: str) -> None:
    """They have the same shape, and the rank that is asked holds them, and their digests."""
    scenario = Scenario(workload=InlineWorkload((InlineRequest("a", (Segment(1, 300),), 4),)))
    two_ranks = {"tp_size": "2", "executor": "multi-process", "quiet_phase_s": "0"}
    outcome = run(
        with_settings(scenario, HYBRID | two_ranks),
        prepare=lambda bed: bed.router.verdicts.add(Says(**{key: 1})),
    ).outcome
    assert {v.oracle for v in outcome.violations} <= {"leak", "release-once"}  # no quiet phase
    assert outcome.requests == {"total": 1, "error": 1, "unfinished": 0}


@pytest.mark.requirement("R12", "S6")
@pytest.mark.parametrize("model", ["llama", "kimi-linear", "glm-flash"])
def test_one_region_of_a_peer_is_enough(model: str) -> None:
    """All layers lie in one allocation. A peer registers each region that is asked about, of
    hundreds of gigabytes, and the one that asks waits for it with the interpreter's lock."""
    preset = PRESETS[model]
    result = run(with_settings(Scenario(model=model, workload=alone(preset)), HYBRID))
    assert result.outcome.violations == []
    asked = [r for r in result.log.records if r.fields.get("request") == "ask-memory-region"]
    assert len(asked) == 1
