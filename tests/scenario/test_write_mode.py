"""MoRIIO's WRITE mode: the producer writes every layer into the consumer's memory as it computes.

What goes wrong in it is in test_findings.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.outcome import Outcome
from sim.probes import Probe
from sim.run import TestBed, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.units import US
from sim.workload import Segment

WRITE = {"extra_config": "{read_mode: 'false'}", "quiet_phase_s": "10"}


def scenario(*requests: tuple[int, int], **settings: str) -> Scenario:
    """Requests of (content, tokens), half a second apart."""
    inline = tuple(
        InlineRequest(f"r{i}", (Segment(*segment),), max_tokens=6, arrival_s=i / 2)
        for i, segment in enumerate(requests)
    )
    return with_settings(Scenario(workload=InlineWorkload(inline)), {**WRITE, **settings})


def served(outcome: Outcome) -> dict[str, int]:
    assert outcome.verdict == "pass", outcome.violations
    return outcome.requests


@pytest.mark.parametrize("model", ["llama", "deepseek-mla", "kimi-linear", "qwen-hybrid"])
@pytest.mark.parametrize("executor", ["single-process", "multi-process"])
def test_requests_are_served(model: str, executor: str) -> None:
    """Every preset that upstream accepts in WRITE mode, with both executors."""
    bench = scenario((1, 300), (2, 700), (1, 300), model=model, executor=executor)
    assert served(run(bench).outcome) == {"total": 3, "length": 3, "unfinished": 0}


@pytest.mark.parametrize(
    "settings",
    [
        {"async_scheduling": "false"},
        {"enable_prefix_caching": "false"},
        {"max_num_batched_tokens": "256"},
        {"engine.tp_size": "2", "executor": "multi-process"},
        {"topology.producers": "2"},
        {"perturb": "true", "seed": "5"},
        {"kv_load_failure_policy": "recompute"},
        {"model_runner": "v1"},
        {"engine.data_parallel_size": "2", "model": "deepseek-mla"},
        {"topology.consumer_data_parallel_size": "2", "model": "deepseek-mla"},
        {"speculation": "{method: mtp, num_speculative_tokens: 2}", "model": "deepseek-mla"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_requests_are_served_in_every_variant(settings: dict[str, str]) -> None:
    """Also in chunks, on two ranks, between several engines, and with drafts."""
    assert served(run(scenario((1, 300), (2, 700), (1, 300), **settings)).outcome)["length"] == 3


class WriteTimes(Probe):
    """When the writes of each layer of one engine were posted and landed."""

    def __init__(self, bed: TestBed) -> None:
        self._bed = bed
        self.posted_ns: dict[int, int] = {}
        self.landed_ns: dict[int, int] = {}

    def after_landing(self, landing: Any) -> None:
        found = self._bed.world.memory_map.locate(
            landing.source, landing.source_offsets, landing.sizes
        )
        assert found is not None
        for layer in np.unique(found[1].layer_index).tolist():
            self.posted_ns.setdefault(layer, landing.posted_ns)
            self.landed_ns.setdefault(layer, self._bed.kernel.now_ns)


def test_a_layer_is_sent_when_it_is_computed_and_not_later() -> None:
    """Once the handshake is done, each layer is on its way while the next one is computed."""
    watch: list[WriteTimes] = []

    def prepare(bed: TestBed) -> None:
        watch.append(WriteTimes(bed))
        bed.kernel.call_later(400_000 * US, lambda: bed.world.probes.add(watch[0]))

    outcome = run(scenario((1, 300), (2, 1000)), prepare=prepare).outcome
    assert served(outcome)["length"] == 2
    posted = [at for _, at in sorted(watch[0].posted_ns.items())]
    pass_ns = 5_000 * US + 1000 * 20 * US
    steps = np.diff(posted)
    assert len(posted) == 4
    assert (np.abs(steps - pass_ns / 5) < 0.01 * pass_ns).all()
    assert all(watch[0].landed_ns[layer] < watch[0].posted_ns[layer + 1] for layer in range(3))


def test_a_configuration_that_upstream_refuses_is_refused_with_its_message() -> None:
    """Sliding windows, in WRITE mode."""
    from sim.errors import UsageError

    with pytest.raises(UsageError, match="WRITE mode does not support sliding-window"):
        run(scenario((1, 300), model="gemma-swa"))
