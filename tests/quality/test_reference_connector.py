"""Nothing fires where the connector is not to blame: the reference connector under everything that
vLLM, clients, routers and machines may do."""

from __future__ import annotations

from collections import Counter

import pytest
from vllm.v1.engine import EngineCoreRequestType

from sim.engine.engine import Engine
from sim.model.presets import PRESETS
from sim.outcome import Outcome
from sim.probes import Probe
from sim.reference.back_door import BackDoor
from sim.request_ids import logical_id
from sim.run import TestBed, run
from sim.scenario import (
    InlineRequest,
    InlineWorkload,
    Scenario,
    UniformWorkload,
    Workload,
    with_settings,
)
from sim.units import MS
from sim.workload import Segment
from tests.scenario.variants import BRIEF_MODELS

MODELS = [
    pytest.param(model, marks=[pytest.mark.soak] if model in BRIEF_MODELS else [])
    for model in PRESETS
]


def with_reference(workload: Workload, **settings: str) -> Scenario:
    return with_settings(Scenario(connector="reference", workload=workload), settings)


def long_ones(model: str) -> UniformWorkload:
    """Six requests at once, of two or three blocks and outputs that need another."""
    block = PRESETS[model].tokens_per_block()
    return UniformWorkload(
        requests=6,
        prompt_tokens=(max(200, 2 * block + 1), max(300, 3 * block)),
        output_tokens=(max(60, block // 2), max(80, block)),
        interval_ms=4.0,
    )


def assert_clean(outcome: Outcome) -> None:
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]


# --------------------------------------------------------------- what is loaded


@pytest.mark.parametrize("model", MODELS)
def test_the_consumer_loads_all_but_the_last_token(model: str) -> None:
    """And only what its prefix cache has not got; else all these tests would show nothing."""
    block = PRESETS[model].tokens_per_block()
    first, longer = 2 * block + 5, 3 * block + 9
    requests = (
        InlineRequest("first", (Segment(1, first),), 3),
        InlineRequest("single", (Segment(2, 1),), 3),
        InlineRequest("longer", (Segment(1, first), Segment(3, longer - first)), 3, arrival_s=1.0),
    )
    beds: list[TestBed] = []
    assert_clean(
        run(with_reference(InlineWorkload(requests), model=model), prepare=beds.append).outcome
    )
    results = beds[0].router.results
    assert results["first"].remote_cached_tokens == first - 1
    assert results["single"].remote_cached_tokens == 0
    hit = 0 if PRESETS[model].is_hybrid else 2 * block
    assert results["longer"].remote_cached_tokens == longer - 1 - hit
    (door,) = (probe for probe in beds[0].world.probes if isinstance(probe, BackDoor))
    assert not door._copies


# ------------------------------------------------------------------ preemption


class Preemptions(Probe):
    """Counts, by engine, requests that lost their blocks and got new ones."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._freed: set[tuple[str, str]] = set()

    def blocks_freed(self, node: str, request_id: str) -> None:
        self._freed.add((node, request_id))

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        if (node, request_id) in self._freed:
            self._freed.remove((node, request_id))
            self.count[node] += 1


@pytest.mark.parametrize("model", MODELS)
def test_preempted_decodes_load_again(model: str) -> None:
    """A pool for hardly more than one request at a time."""
    workload = long_ones(model)
    block = PRESETS[model].tokens_per_block()
    longest = workload.prompt_tokens[1] + workload.output_tokens[1]
    blocks = PRESETS[model].num_groups * (3 * longest // (2 * block) + 1) + 1
    preemptions = Preemptions()
    scenario = with_reference(workload, model=model, num_blocks=str(blocks))
    assert_clean(run(scenario, probe=preemptions).outcome)
    assert preemptions.count["d0"] > 0


def preempt_all(engine: Engine) -> None:
    """vLLM's own call for it, sent as a front end sends it."""
    assert engine.loop is not None
    call = (0, 0, "reset_prefix_cache", (True, False))
    engine.loop.input_queue.put_nowait((EngineCoreRequestType.UTILITY, call))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scheduling", ["true", "false"])
def test_preemption_on_either_side_changes_no_output(model: str, scheduling: str) -> None:
    """Prefills do not preempt each other here, so everything that runs is preempted by order."""
    preemptions = Preemptions()

    def prepare(bed: TestBed) -> None:
        for n in range(1, 20):
            for engine in bed.engines:
                bed.kernel.call_later(n * 45 * MS, preempt_all, engine)

    chunk = max(64, PRESETS[model].tokens_per_block())
    scenario = with_reference(
        long_ones(model),
        model=model,
        async_scheduling=scheduling,
        max_num_batched_tokens=str(chunk),
    )
    assert_clean(run(scenario, prepare=prepare, probe=preemptions).outcome)
    assert preemptions.count["p0"] > 0
    assert preemptions.count["d0"] > 0


# -------------------------------------------------------------- failing machines


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("executor", ["single-process", "multi-process"])
@pytest.mark.parametrize("engine", ["p0", "d0"])
def test_a_crash_costs_requests_and_nothing_else(model: str, executor: str, engine: str) -> None:
    """The engine comes back on its address, twice, and serves as if nothing had been."""

    def prepare(bed: TestBed) -> None:
        (victim,) = (e for e in bed.engines if e.name == engine)
        for at_ms in (40, 140):
            bed.kernel.call_later(at_ms * MS, victim.crash)
            bed.kernel.call_later((at_ms + 20) * MS, victim.restart)

    workload = UniformWorkload(
        requests=12, prompt_tokens=(100, 300), output_tokens=(4, 12), interval_ms=20.0
    )
    outcome = run(with_reference(workload, model=model, executor=executor), prepare=prepare).outcome
    assert outcome.violations == []
    assert outcome.requests["engine-died"] > 0
    assert outcome.requests["length"] > 0
    assert outcome.requests["unfinished"] == 0


class LoseCopies(Probe):
    """Throws away what was kept for some requests as soon as a consumer has blocks for them."""

    def __init__(self, bed: TestBed, requests: set[str]) -> None:
        (self._door,) = (probe for probe in bed.world.probes if isinstance(probe, BackDoor))
        self._requests = requests

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        if node == "d0" and logical_id(request_id) in self._requests:
            self._door.request_ended(logical_id(request_id), "lost", [])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"async_scheduling": "false"},
        {"executor": "multi-process", "tp_size": "2"},
    ],
    ids=str,
)
@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_a_load_that_fails_is_reported(model: str, settings: dict[str, str], policy: str) -> None:
    """Then the request fails, or the consumer prefills, by the policy; others go on."""
    workload = long_ones(model)
    scenario = with_reference(workload, model=model, kv_load_failure_policy=policy, **settings)

    def prepare(bed: TestBed) -> None:
        bed.world.probes.add(LoseCopies(bed, {"req-1", "req-4"}))

    outcome = run(scenario, prepare=prepare).outcome
    assert outcome.violations == []
    failed = 2 if policy == "fail" else 0
    assert outcome.requests.get("error", 0) == failed
    assert outcome.requests["length"] == 6 - failed


# --------------------------------------------------------------- other geometries


@pytest.mark.parametrize("model", MODELS)
def test_the_true_dimensions(model: str) -> None:
    """Of every model, for a short run."""
    workload = UniformWorkload(
        requests=2, prompt_tokens=(40, 60), output_tokens=(3, 3), interval_ms=50.0
    )
    in_blocks = -(
        -256 // PRESETS[model].tokens_per_block(geometry="real")
    )  # the least maximum length
    blocks = PRESETS[model].num_groups * (in_blocks + 4)
    assert_clean(
        run(with_reference(workload, model=model, geometry="real", num_blocks=str(blocks))).outcome
    )


# --------------------------------------------------------------------- speculation

DRAFTERS = [
    pytest.param(
        model,
        method,
        marks=[pytest.mark.soak] if model in BRIEF_MODELS else [],
        id=f"{model}-{method}",
    )
    for model, preset in PRESETS.items()
    for method in preset.drafters
]


@pytest.mark.parametrize(("model", "method"), DRAFTERS)
@pytest.mark.parametrize("executor", ["single-process", "multi-process"])
def test_what_a_drafter_writes_is_handed_over_too(model: str, method: str, executor: str) -> None:
    """It is still at work when the output of the prefill is there."""
    settings = {"speculation.method": method, "num_speculative_tokens": "2", "executor": executor}
    assert_clean(run(with_reference(long_ones(model), model=model, **settings)).outcome)
