"""What is refused before vLLM is loaded is what the run refuses, in its words."""

from __future__ import annotations

import pytest

from sim.errors import UsageError
from sim.foresight import require_possible
from sim.run import run
from sim.scenario import Scenario, with_settings
from sim.testbed import TestBed

_DECODERS = "topology.consumer_data_parallel_size"
_RETRY = "[{request: req-1, consumer: other, after_s: 1}]"
IMPOSSIBLE: list[tuple[dict[str, str], str]] = [
    ({"connector": "no.such:Thing"}, "engine p0 refused to start: .*'no'; if no is yours"),
    (
        {"connector": "sim.no:Thing", "producer_connector": "hybrid", _DECODERS: "2"},
        "engine d0-dp0 refused to start: .*'sim.no'",
    ),
    ({"producer_connector": "connector.no:Thing"}, "engine p0 .*'connector.no'"),
    ({"overlay": "nowhere"}, "nowhere' is not a directory"),
    ({"overlay": "docs"}, "no module of the engines is in overlay '.*docs'"),
    ({"tp_size": "3", "executor": "multi-process"}, "tp_size 3 does not fit 8 KV heads"),
    ({"model": "kimi-linear", "enable_chunked_prefill": "false"}, "vLLM wants chunked prefill"),
    ({"speculation.method": "mtp", "num_speculative_tokens": "1"}, "llama has no drafter"),
    ({"num_blocks": "1"}, "expected at least 2"),
    (
        {"extra_config.read_mode": "false", "consumers": "2", "router.retries": _RETRY},
        "cannot go to another consumer",
    ),
]
TOPOLOGIES: list[dict[str, str]] = [
    {"producers": "2", "consumers": "3"},
    {"data_parallel_size": "2", _DECODERS: "3"},
    {"colocated": "true"},
    {"colocated": "true", "engine.data_parallel_size": "2"},
]


@pytest.mark.parametrize(("settings", "words"), IMPOSSIBLE)
def test_it_is_said_early_as_it_is_said_late(settings: dict[str, str], words: str) -> None:
    """The run itself does not ask beforehand."""
    scenario = with_settings(Scenario(), settings)
    with pytest.raises(UsageError, match=words) as early:
        require_possible(scenario)
    with pytest.raises(UsageError) as late:
        run(scenario)
    assert str(early.value) == str(late.value)
    assert isinstance(late.value, type(early.value))


@pytest.mark.parametrize("settings", TOPOLOGIES)
def test_a_scenario_knows_the_names_of_its_engines(settings: dict[str, str]) -> None:
    """Those that faults are aimed at."""
    scenario = with_settings(Scenario(), settings)
    require_possible(scenario)
    assert [engine.name for engine in TestBed(scenario).engines] == scenario.engine_names


def test_what_can_run_is_not_refused() -> None:
    """Connectors of every kind of place: vLLM's, this project's, the simulator's."""
    for connector in ("moriio", "example", "hybrid", "reference"):
        require_possible(with_settings(Scenario(), {"connector": connector}))
    colocated = {"colocated": "true", "connector": "no.such:Thing"}
    require_possible(with_settings(Scenario(), colocated))
