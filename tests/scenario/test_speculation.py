"""Speculative decoding: the drafter never shows in the output, and its drafts in the acceptance."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from sim.errors import UsageError
from sim.model.presets import PRESETS
from sim.model.speculation import accepted_drafts
from sim.outcome import Outcome
from sim.probes import Probe
from sim.router.options import Abort, RouterOptions
from sim.run import TestBed, run
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    UniformWorkload,
    with_settings,
)
from sim.workload import Segment, prompt_token_ids

METHODS = {name: max(preset.drafters) for name, preset in PRESETS.items() if preset.drafters}
"""MTP where there is a choice."""
ACCEPTED_BY_MORIIO = ("deepseek-mla", "kimi-linear")
PLAIN = UniformWorkload(
    requests=4, prompt_tokens=(100, 300), output_tokens=(30, 60), interval_ms=20.0
)
LONG = UniformWorkload(
    requests=3, prompt_tokens=(100, 140), output_tokens=(300, 320), interval_ms=5.0
)
SHARED = GeneratedWorkload(requests=6, length_scale=0.05, rate_rps=40, shared_prefix_share=0.6)
ENGINES = [
    {"executor": executor, "async_scheduling": scheduling}
    for executor, scheduling in itertools.product(
        ("single-process", "multi-process"), ("true", "false")
    )
]
VARIANTS: list[dict[str, str]] = [
    {"max_num_batched_tokens": "256"},
    {"enable_prefix_caching": "false"},
    {"tp_size": "2", "executor": "multi-process"},
    {"check": "full"},
    {"perturb": "true"},
]


def scenario(model: str, drafts: int, settings: dict[str, str], base: Scenario) -> Scenario:
    """A drafter of no duration; what happens while it runs is among the findings."""
    return with_settings(
        base,
        {
            "model": model,
            "speculation.method": METHODS[model],
            "num_speculative_tokens": str(drafts),
            "draft_us": "0",
            **settings,
        },
    )


def served(scenario: Scenario, probe: Probe | None = None) -> tuple[Outcome, TestBed]:
    beds: list[TestBed] = []
    outcome = run(scenario, prepare=beds.append, probe=probe).outcome
    assert outcome.violations == []
    assert outcome.requests["unfinished"] == 0
    return outcome, beds[-1]


def predicted(bed: TestBed, leg: str, *, is_odd: bool = False) -> list[int]:
    """Accepted drafts by step of a leg that generates everything after the first token."""
    speculation = bed.scenario.engine.speculation
    assert speculation is not None
    spec = {spec.request_id: spec for spec in bed.requests}[leg.rpartition("-")[0]]
    prompt = prompt_token_ids(spec, vocab_size=bed.world.vocab_size)
    odd_row = len(prompt) - 2 if is_odd else None
    return accepted_drafts(prompt, spec.max_tokens, bed.world.vocab_size, speculation, odd_row)


def on(bed: TestBed, node: str) -> dict[str, list[int]]:
    return {leg: steps for leg, steps in bed.acceptance.by_leg.items() if leg.endswith(node)}


@pytest.mark.parametrize("model", METHODS)
@pytest.mark.parametrize("drafts", [1, 2, 7])
@pytest.mark.parametrize("settings", [{}, {"async_scheduling": "false"}], ids=str)
def test_colocated_acceptance_is_what_the_drafter_defines(
    model: str, drafts: int, settings: dict[str, str]
) -> None:
    """Step by step, exactly; outputs are those of a model without a drafter."""
    base = Scenario(workload=PLAIN, topology=Topology(colocated=True))
    _, bed = served(scenario(model, drafts, settings, base))
    legs = on(bed, "c0")
    assert len(legs) == 4
    assert legs == {leg: predicted(bed, leg) for leg in legs}


@pytest.mark.parametrize("model", ACCEPTED_BY_MORIIO)
@pytest.mark.parametrize("drafts", [1, 7])
@pytest.mark.parametrize("settings", ENGINES, ids=str)
def test_a_consumer_accepts_as_many(model: str, drafts: int, settings: dict[str, str]) -> None:
    """After a first step in which vLLM has placeholders verified. The producer verifies nothing."""
    _, bed = served(scenario(model, drafts, settings, Scenario(workload=PLAIN)))
    legs = on(bed, "d0")
    assert legs == {leg: [0, *predicted(bed, leg)] for leg in legs}
    assert all(steps == [] for steps in on(bed, "p0").values())


@pytest.mark.parametrize("model", METHODS)
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_colocated_variants_are_clean(model: str, settings: dict[str, str]) -> None:
    """Shared prefixes, chunks, ranks, and checking everything."""
    base = Scenario(workload=SHARED, topology=Topology(colocated=True))
    served(scenario(model, 3, settings, base))


@pytest.mark.parametrize("model", ACCEPTED_BY_MORIIO)
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_moriio_variants_are_clean(model: str, settings: dict[str, str]) -> None:
    """Wherever upstream accepts the drafter."""
    served(scenario(model, 3, settings, Scenario(workload=SHARED)))


@pytest.mark.parametrize("model", METHODS)
def test_the_reference_connector_hands_over_drafters_too(model: str) -> None:
    """With a drafter that takes its time, and prefixes that were handed over before."""
    base = Scenario(workload=SHARED, connector="reference")
    served(scenario(model, 7, {"draft_us": "400"}, base))


@pytest.mark.parametrize("model", METHODS)
@pytest.mark.parametrize("scheduling", ["true", "false"])
def test_long_outputs_cross_many_blocks(model: str, scheduling: str) -> None:
    """Drafts that are accepted across the end of a block move the state of a hybrid model."""
    base = Scenario(workload=LONG, topology=Topology(colocated=True))
    served(scenario(model, 7, {"async_scheduling": scheduling}, base))


class Preemptions(Probe):
    """Counts requests that lost their blocks and got new ones on the same engine."""

    def __init__(self) -> None:
        self.count = 0
        self._freed: set[tuple[str, str]] = set()

    def blocks_freed(self, node: str, request_id: str) -> None:
        self._freed.add((node, request_id))

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        if (node, request_id) in self._freed:
            self._freed.remove((node, request_id))
            self.count += 1


@pytest.mark.parametrize("model", ["deepseek-mla", "kimi-linear", "qwen-hybrid"])
@pytest.mark.parametrize("scheduling", ["true", "false"])
def test_preemption_changes_no_output(model: str, scheduling: str) -> None:
    """Requests lose their blocks while drafts are under way."""
    workload = UniformWorkload(
        requests=5, prompt_tokens=(200, 300), output_tokens=(200, 220), interval_ms=5.0
    )
    settings = {"num_blocks": "24", "async_scheduling": scheduling}
    preemptions = Preemptions()
    base = Scenario(workload=workload, topology=Topology(colocated=True))
    served(scenario(model, 2, settings, base), preemptions)
    assert preemptions.count > 0


@pytest.mark.parametrize("model", ACCEPTED_BY_MORIIO)
def test_aborted_requests_leave_nothing_behind(model: str) -> None:
    """Clients that go away while they wait for a token or in the middle of a decode."""
    aborts = (Abort("req-1", on_phase="decode"), Abort("req-2", at_s=0.06))
    base = Scenario(workload=PLAIN, router=RouterOptions(aborts=aborts))
    outcome, _ = served(scenario(model, 3, {}, base))
    assert outcome.requests["total"] - outcome.requests["length"] == 2


def whole(lengths: Sequence[int]) -> InlineWorkload:
    """Requests that share nothing, one after the other."""
    return InlineWorkload(
        tuple(
            InlineRequest(f"req-{n}", (Segment(n, length),), max_tokens=40, arrival_s=0.3 * n)
            for n, length in enumerate(lengths)
        )
    )


def test_the_odd_row_of_a_hand_off_is_legal_and_costs_acceptance() -> None:
    """The producer's drafter continued its last row with a token of its own, which is no wrong
    byte; the next drafts of the consumer are all rejected, and later ones are as colocated."""
    base = Scenario(workload=whole((150, 157, 164)), connector="reference")
    outcome, bed = served(scenario("qwen-hybrid", 2, {"draft_us": "400"}, base))
    legs = on(bed, "d0")
    assert legs == {leg: [0, *predicted(bed, leg, is_odd=True)] for leg in legs}
    assert outcome.speculation is not None
    colocated = Scenario(workload=base.workload, topology=Topology(colocated=True))
    alone, _ = served(scenario("qwen-hybrid", 2, {}, colocated))
    assert alone.speculation is not None
    assert outcome.speculation.rate < alone.speculation.rate - 0.1


def test_dspark_has_no_odd_row() -> None:
    """Its rows do not depend on the next token."""
    base = Scenario(workload=whole((150, 157, 164)), connector="reference")
    _, bed = served(scenario("kimi-linear", 2, {"draft_us": "400"}, base))
    legs = on(bed, "d0")
    assert legs == {leg: [0, *predicted(bed, leg)] for leg in legs}


def test_what_upstream_refuses_is_upstreams_word() -> None:
    """MoRIIO takes hybrid models with DSpark alone."""
    with pytest.raises(UsageError, match="DSpark speculative decoding only, got method='mtp'"):
        run(scenario("qwen-hybrid", 1, {}, Scenario(workload=PLAIN)))


def test_the_same_scenario_has_the_same_hash() -> None:
    """Drafts are a function of the prompt, like everything else."""
    once = scenario("kimi-linear", 3, {"perturb": "true"}, Scenario(workload=PLAIN))
    assert run(once).outcome.event_hash == run(once).outcome.event_hash
