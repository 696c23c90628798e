"""Instances that share a machine: ports of their own, and KV copied between GPUs by XGMI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from faults.cli.options import RunOptions, build_scenario
from faults.running import run as run_with_faults
from faults.schedule import with_faults
from sim.outcome import Outcome
from sim.probes import Probe
from sim.run import RunResult, run
from sim.scenario import GeneratedWorkload, Scenario, with_settings

SHARED = GeneratedWorkload(requests=6, length_scale=0.05, rate_rps=40, shared_prefix_share=0.6)
ONE_MACHINE = {"topology.nodes": "shared"}
# The connector waits for it in full; see docs/findings.md.
XGMI = {**ONE_MACHINE, "extra_config.backend": "xgmi", "extra_config.transfer_timeout": "0.02"}


class Landings(Probe):
    """Who copied how many bytes to whom, and over which machines."""

    def __init__(self) -> None:
        self.bytes = 0
        self.nodes: set[str] = set()

    def after_landing(self, landing: Any) -> None:
        self.bytes += int(landing.sizes.sum())
        self.nodes |= {landing.source.node, landing.destination.node}


def clean(model: str, settings: Mapping[str, str], probe: Probe | None = None) -> Outcome:
    scenario = with_settings(Scenario(model=model, workload=SHARED), settings)
    outcome = run(scenario, probe=probe).outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    return outcome


MODELS = ("llama", "deepseek-mla", "gemma-swa", "kimi-linear", "qwen-hybrid")


@pytest.mark.parametrize("model", MODELS)
def test_xgmi_carries_every_kind_of_cache(model: str) -> None:
    """The bytes are right, and no NIC has moved any of them."""
    landings = Landings()
    clean(model, XGMI, landings)
    assert landings.bytes > 0
    assert landings.nodes == {"n0"}


TWO_BY_TWO = {"producers": "2", "consumers": "2"}
TWO_RANKS = {"tp_size": "2", "executor": "multi-process"}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("llama", ONE_MACHINE),
        ("llama", {**ONE_MACHINE, **TWO_BY_TWO, **TWO_RANKS}),
        ("llama", {**XGMI, **TWO_BY_TWO, **TWO_RANKS}),
        ("llama", {**XGMI, "extra_config.read_mode": "false"}),
        ("deepseek-mla", {**XGMI, "engine.data_parallel_size": "2"}),
        ("deepseek-mla", {**XGMI, **TWO_BY_TWO, "perturb": "true"}),
    ],
    ids=["rdma", "rdma-2x2-tp2", "xgmi-2x2-tp2", "xgmi-write", "xgmi-dp2", "xgmi-perturbed"],
)
def test_instances_of_one_machine_do_not_get_in_each_others_way(
    model: str, settings: Mapping[str, str]
) -> None:
    """Ports, GPUs and NICs of several instances and ranks on one address."""
    clean(model, settings)


def times_to_first_token(result: RunResult) -> list[float]:
    """Seconds, of the requests called first and second."""
    arrived = {
        r.fields["request"]: r.time_ns for r in result.log.records if r.kind == "request-arrived"
    }
    ended = {
        r.fields["request"]: r.time_ns for r in result.log.records if r.kind == "request-ended"
    }
    return [(ended[name] - arrived[name]) / 1e9 for name in ("first", "second")]


def test_a_read_over_xgmi_takes_the_whole_time_out() -> None:
    """Nothing tells the waiting connector that the copies are over."""
    slow = run(build_scenario(RunOptions(scenario="xgmi-waits")))
    assert slow.outcome.passed
    assert all(seconds > 5 for seconds in times_to_first_token(slow))
    rdma = RunOptions(scenario="xgmi-waits", settings=("extra_config.backend=rdma",))
    assert all(seconds < 0.2 for seconds in times_to_first_token(run(build_scenario(rdma))))


def test_xgmi_between_machines_ends_the_consumer() -> None:
    """The library opens no session; the connector finds out in the first step that reads."""
    scenario = with_settings(
        Scenario(workload=SHARED, quiet_phase_s=1.0), {"extra_config.backend": "xgmi"}
    )
    outcome = run(scenario).outcome
    (death,) = [v for v in outcome.violations if v.evidence.get("kind") == "engine-died"]
    assert "MoRI could not open a session" in death.detail
    assert outcome.requests["engine-died"] == 6


OF_ONE_ENGINE = [
    ("rdma", "message-dropped:node=d1,count=null"),
    ("rdma", "completion-lost:node=d1,count=null"),
    ("rdma", "late-landing:node=d1,count=null,by_s=1"),
    ("rdma", "region-invalid:node=d1,phase=read_posted,nth=2"),
    ("xgmi", "late-landing:node=d1,count=null,by_s=1"),
    ("xgmi", "malformed-message:node=d1,phase=read_done,nth=2"),
]


@pytest.mark.parametrize(("backend", "fault"), OF_ONE_ENGINE)
def test_a_fault_of_one_engine_leaves_the_others_on_its_machine_alone(
    backend: str, fault: str
) -> None:
    """It reaches requests of the engine that it names, and none of its neighbour."""
    settings = {**ONE_MACHINE, "topology.consumers": "2", "extra_config.backend": backend}
    scenario = with_settings(
        Scenario(model="llama", workload=SHARED, quiet_phase_s=0.0, max_virtual_s=5.0), settings
    )
    faulted = run_with_faults(with_faults(scenario, [fault]))
    records = faulted.result.log.records
    reached = {r for rec in records if rec.kind == "fault-hit" for r in rec.fields["requests"]}
    sent = {
        rec.fields["request"]: rec.fields["node"]
        for rec in records
        if rec.kind == "leg-sent" and rec.fields["leg"].endswith("-d0")
    }
    assert reached, faulted.faults
    assert {sent[request] for request in reached} == {"d1"}
