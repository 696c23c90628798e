"""What campaigns draw, over thousands of seeds that are not run: lengths, hits, modes, clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from faults.campaign.swarm import SwarmOptions, scenario_of
from sim.kernel import Seed
from sim.model.presets import PRESETS
from sim.scenario import Scenario, workload_of
from sim.workload import RequestSpec

SEEDS = 3_000
SEEDS_FOR_EVERY_HIT = 30_000


def drawn(seeds: int = SEEDS, **options: object) -> Iterator[Scenario]:
    chosen = SwarmOptions(models=tuple(PRESETS), **options)  # type: ignore[arg-type]
    return (scenario_of(seed, chosen) for seed in range(seeds))


def requests_of(scenario: Scenario) -> list[RequestSpec]:
    return workload_of(scenario, Seed(scenario.seed).stream("workload"))


@pytest.fixture(scope="module")
def scenarios() -> list[Scenario]:
    return list(drawn())


@pytest.fixture(scope="module")
def workloads(scenarios: list[Scenario]) -> list[list[RequestSpec]]:
    return [requests_of(scenario) for scenario in scenarios]


def block_sizes() -> set[int]:
    return {preset.tokens_per_block(1, "reduced") for preset in PRESETS.values()} | {
        preset.block_size for preset in PRESETS.values()
    }


def windows() -> set[int]:
    """Of layers with one, from vLLM's own specs."""
    found = {
        getattr(spec, "sliding_window", None)
        for preset in PRESETS.values()
        for spec in preset.layer_specs(1, "reduced").values()
    }
    return found - {None}


def hits(workload: Sequence[RequestSpec]) -> Iterator[int]:
    """How much of each prompt an earlier one began with."""
    for number, spec in enumerate(workload):
        yield max((_common(spec, earlier) for earlier in workload[:number]), default=0)


def _common(one: RequestSpec, other: RequestSpec) -> int:
    common = 0
    for (content, count), (its_content, its_count) in zip(one.prompt, other.prompt, strict=False):
        if content != its_content:
            break
        common += min(count, its_count)
        if count != its_count:
            break
    return common


def test_prompts_end_everywhere_in_a_block(workloads: list[list[RequestSpec]]) -> None:
    """Every residue of every block size of the models, whole blocks included; and prompts of one
    token, which leave a producer nothing to hand over."""
    lengths = {spec.prompt_tokens for workload in workloads for spec in workload}
    for size in block_sizes():
        assert {length % size for length in lengths} == set(range(size)), size
        assert size in lengths
    assert 1 in lengths


def test_hits_end_everywhere_in_a_block(workloads: list[list[RequestSpec]]) -> None:
    """A prefix that was seen before is of any length, up to the whole prompt: every residue of
    every block size, and soon those around its ends, where it matters."""
    found = {hit for workload in workloads for hit in hits(workload)}
    for size in block_sizes():
        assert {size - 1, size, size + 1} <= found, size
    long = drawn(SEEDS_FOR_EVERY_HIT)
    found = {hit for scenario in long for hit in hits(requests_of(scenario))}
    for size in block_sizes():
        assert {hit % size for hit in found} == set(range(size)), size
    whole = [w for w in workloads if any(a.prompt == b.prompt for a, b in pairwise(w))]
    assert len(whole) > 20


def test_prompts_end_on_both_sides_of_a_window(workloads: list[list[RequestSpec]]) -> None:
    """Around its length, and around it plus a block; and so do hits."""
    lengths = {spec.prompt_tokens for workload in workloads for spec in workload}
    found = {hit for workload in workloads for hit in hits(workload)}
    assert windows()
    for window in windows():
        for boundary in (window, *(window + size for size in block_sizes())):
            assert {boundary - 1, boundary, boundary + 1} <= lengths & found, boundary


def test_drafts_chunks_and_both_modes_are_drawn(scenarios: list[Scenario]) -> None:
    """MoRIIO writes in some runs; every drafter and depth comes up; prompts are cut to chunks."""
    assert {s.extra_config.get("read_mode", "true") for s in scenarios} == {"true", "false"}
    assert not any("read_mode" in s.extra_config for s in drawn(connector="hybrid"))
    drafters = {(s.model, s.engine.speculation and s.engine.speculation.method) for s in scenarios}
    offered = {(name, method) for name, preset in PRESETS.items() for method in preset.drafters}
    assert offered <= drafters
    assert {s.engine.num_speculative_tokens for s in scenarios} == {0, 1, 2, 3}
    assert {s.engine.max_num_batched_tokens for s in scenarios} == {256, 8_192}
    for s in scenarios:
        if s.engine.speculation and s.engine.async_scheduling:
            assert s.engine.kv_load_failure_policy == "fail"


def test_clients_stop_at_their_first_token_and_want_several_answers() -> None:
    """Both are kinds of fault, drawn for every connector, and several-samples with each number."""
    for connector in ("moriio", "hybrid"):
        faults = [f for s in drawn(connector=connector) for f in s.faults]
        stops = {f["after"] for f in faults if f["kind"] == "stop-token"}
        samples = {f["samples"] for f in faults if f["kind"] == "several-samples"}
        assert 0 in stops
        assert samples == {2, 3, 4}
