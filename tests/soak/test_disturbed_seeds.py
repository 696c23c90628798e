"""No rule fires where the connector is not to blame: colocated engines and the reference connector,
on every model, under all that engines, clients, routers and machines may do, drawn from seeds."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest

from sim.engine.engine import Engine
from sim.kernel import Seed
from sim.model.presets import PRESETS, ModelPreset
from sim.probes import Probe
from sim.router.options import (
    COLOCATED_PHASES,
    PHASES,
    Abort,
    Hold,
    Retry,
    RouterOptions,
)
from sim.run import TestBed, run
from sim.scenario import GeneratedWorkload, Scenario, Topology, with_settings, workload_of
from sim.units import MS

pytestmark = pytest.mark.soak

SEEDS_PER_MODEL = 60


def engine_settings(rng: random.Random, preset: ModelPreset) -> dict[str, str]:
    """An engine variant, in one of three with a pool that holds little more than two requests."""
    executor = rng.choice(["single-process", "multi-process"])
    settings = {
        "executor": executor,
        "tp_size": str(rng.choice([1, 2]) if executor == "multi-process" else 1),
        "async_scheduling": rng.choice(["true", "false"]),
        "enable_prefix_caching": rng.choice(["true", "true", "false"]),
        "max_num_batched_tokens": str(preset.tokens_per_block() + rng.choice([64, 300, 8192])),
        "kv_load_failure_policy": rng.choice(["fail", "recompute"]),
    }
    if rng.random() < 0.3:
        blocks = -(-1_300 // preset.tokens_per_block(int(settings["tp_size"]))) + 1
        settings["num_blocks"] = str(preset.num_groups * blocks * rng.choice([2, 3]) + 1)
    return settings


def disturbances(rng: random.Random, names: list[str], topology: Topology) -> RouterOptions:
    """A third of the requests is held, aborted in some phase, or sent again."""
    phases = COLOCATED_PHASES if topology.colocated else PHASES
    holds, aborts, retries = [], [], []
    for name in names:
        match rng.randrange(9):
            case 0 if not topology.colocated:
                holds.append(Hold(name, rng.choice([0.05, 1.0, 100.0])))
            case 1:
                aborts.append(Abort(name, on_phase=rng.choice(phases)))
            case 2:
                same = rng.choice([True, False])
                other: Any = rng.choice(["same", "other"]) if topology.consumers > 1 else "same"
                retries.append(Retry(name, rng.choice([0.0, 0.01, 0.1]), same, other))
    return RouterOptions(holds=tuple(holds), aborts=tuple(aborts), retries=tuple(retries))


def drawn(preset: ModelPreset, seed: int) -> Scenario:
    rng = Seed(seed).stream("no false alarms")
    workload = GeneratedWorkload(
        requests=rng.randrange(3, 13),
        length_scale=rng.choice([0.02, 0.1]),
        max_prompt_tokens=rng.choice([150, 1_200]),
        max_output_tokens=rng.choice([10, 80]),
        rate_rps=rng.choice([5.0, 50.0, 500.0]),
        shared_prefix_share=rng.choice([0.0, 0.37, 0.8]),
    )
    is_colocated = rng.random() < 0.2
    scenario = Scenario(
        seed=seed,
        model=preset.name,
        connector="reference",
        topology=Topology(colocated=True)
        if is_colocated
        else Topology(rng.choice([1, 1, 2]), rng.choice([1, 1, 2])),
        workload=workload,
        perturb=rng.random() < 0.75,
        check=rng.choice(["incremental", "incremental", "full"]),
    )
    names = [spec.request_id for spec in workload_of(scenario, Seed(seed).stream("workload"))]
    router = disturbances(rng, names, scenario.topology)
    scenario = msgspec.structs.replace(scenario, router=router)
    return with_settings(scenario, engine_settings(rng, preset))


class Crashes(Probe):
    """In one run of three, an engine dies before the quiet phase, perhaps in the middle of a load,
    and comes back."""

    def __init__(self, seed: int) -> None:
        self._rng = Seed(seed).stream("crashes")
        self._is_quiet = False

    def __call__(self, bed: TestBed) -> None:
        bed.world.probes.add(self)
        rng = self._rng
        if rng.random() < 0.33:
            victim = rng.choice(bed.engines)
            away_ms = rng.choice([1, 50])
            bed.kernel.call_later(rng.randrange(5, 400) * MS, self._crash, bed, victim, away_ms)

    def quiet_phase_began(self) -> None:
        self._is_quiet = True

    def _crash(self, bed: TestBed, victim: Engine, away_ms: int) -> None:
        if not self._is_quiet:
            victim.crash()
            bed.kernel.call_later(away_ms * MS, self._restart, victim)

    def _restart(self, victim: Engine) -> None:
        if not self._is_quiet:  # then everything has come back already
            victim.restart()


@pytest.mark.parametrize("model", PRESETS)
def test_nothing_fires_where_the_connector_is_not_to_blame(model: str) -> None:
    """Every request ends as its client, or a crash, would have it."""
    for seed in range(SEEDS_PER_MODEL):
        scenario = drawn(PRESETS[model], seed)
        outcome = run(scenario, prepare=Crashes(seed)).outcome
        assert outcome.violations == [], f"seed {seed}: {outcome.violations[0]}"
        assert outcome.requests["unfinished"] == 0, f"seed {seed}"
        assert outcome.requests.get("error", 0) == 0, f"seed {seed}"


def test_the_draws_reach_everything() -> None:
    """A kind of disturbance that no seed draws would show nothing."""
    scenarios = [drawn(PRESETS["llama"], seed) for seed in range(SEEDS_PER_MODEL)]
    phases = {abort.on_phase for s in scenarios for abort in s.router.aborts}
    assert phases == set(PHASES)
    assert any(s.router.holds for s in scenarios)
    retries = list(itertools.chain.from_iterable(s.router.retries for s in scenarios))
    assert {(r.same_transfer_id, r.consumer) for r in retries} == {
        (same, consumer) for same in (True, False) for consumer in ("same", "other")
    }
    assert {s.topology.colocated for s in scenarios} == {True, False}
