"""A drafter whose layers share no cache group with the model's, because they have windows."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import UsageError
from sim.run import run
from sim.scenario import GeneratedWorkload, Scenario, Topology, with_settings

SHARED = GeneratedWorkload(requests=8, length_scale=0.1, rate_rps=40, shared_prefix_share=0.6)
SPECULATION = {"speculation.method": "dspark", "num_speculative_tokens": "3"}
VARIANTS: list[dict[str, str]] = [
    {},
    {"async_scheduling": "false", "check": "full"},
    {"executor": "multi-process", "tp_size": "2"},
    {"enable_prefix_caching": "false"},
    {"max_num_batched_tokens": "251"},
]


def scenario(settings: dict[str, str], **options: Any) -> Scenario:
    plain = Scenario(model="qwen-hybrid", workload=SHARED, **options)
    return with_settings(plain, {**SPECULATION, **settings})


@pytest.mark.parametrize("where", ["colocated", "reference", "hybrid"])
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_its_rows_are_right_wherever_they_come_from(where: str, settings: dict[str, str]) -> None:
    """Alone, and handed over by connectors that take all groups along."""
    if where == "colocated":
        chosen = scenario(settings, topology=Topology(colocated=True))
    else:
        chosen = scenario(settings, connector=where)
    outcome = run(chosen).outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]


def test_vllms_moriio_connector_refuses_it() -> None:
    """It says that this is why."""
    with pytest.raises(UsageError, match="a drafter that owns a separate attention group"):
        run(scenario({}))
