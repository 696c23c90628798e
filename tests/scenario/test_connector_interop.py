"""A producer and a consumer of different kinds: vLLM's MoRIIO connector on one side, ours on the
other, in either combination, on every layout that upstream transfers."""

from __future__ import annotations

import pytest
from variants import has_rings, shared, together

from sim.engine.connectors import CONNECTORS, ConnectorKind
from sim.model.presets import PRESETS
from sim.run import run
from sim.scenario import Scenario, with_settings

MODELS = [name for name, preset in PRESETS.items() if not has_rings(preset)]
PAIRS = ("HybridReadsFromUpstream", "UpstreamReadsFromHybrid")


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in PAIRS:
        kind = ConnectorKind(
            name=pair,
            summary="for these tests",
            module="mixed_connector",
            class_name=pair,
            roots=("mixed_connector", "connector"),
            extra_config={"read_mode": "true", "http_port": 8000},
        )
        monkeypatch.setitem(CONNECTORS, pair, kind)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("model", MODELS)
def test_either_side_may_be_upstreams(model: str, pair: str) -> None:
    """Outputs equal the definition, and everything is released. What upstream's producer no longer
    has at a window's edge is computed again."""
    preset = PRESETS[model]
    settings = {"connector": pair, "kv_load_failure_policy": "recompute"}
    for workload in (shared(preset), together(preset)):
        scenario = with_settings(Scenario(model=model, workload=workload), settings)
        outcome = run(scenario).outcome
        assert outcome.violations == []
        assert outcome.requests["length"] == outcome.requests["total"]


@pytest.mark.parametrize("pair", PAIRS)
def test_ranks_are_paired_as_upstream_pairs_them(pair: str) -> None:
    """With two ranks on each side."""
    preset = PRESETS["llama"]
    scenario = with_settings(
        Scenario(model="llama", workload=shared(preset)),
        {"connector": pair, "tp_size": "2", "executor": "multi-process"},
    )
    assert run(scenario).outcome.violations == []
