"""A setting that is misspelt and that no connector looks for is told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from faults.cli.run_summary import not_asked_line
from sim.engine.asked import WatchedSettings
from sim.run import run
from sim.scenario import Scenario, UniformWorkload
from sim.scenario.types import Topology

TINY = Scenario(workload=UniformWorkload(requests=1, prompt_tokens=(20, 20), output_tokens=(2, 2)))
GIVEN = {"read_mode": "false", "port": 9}


def with_settings(**settings: Any) -> Scenario:
    return msgspec.structs.replace(TINY, extra_config=settings)


def test_a_misspelt_setting_is_told_with_the_one_that_was_meant() -> None:
    """vLLM's connector reads by name, and takes the default for what is not there."""
    scenario = with_settings(read_mod="false", transfer_timeout=9)
    outcome = run(scenario).outcome
    assert outcome.settings_not_asked_for == ["read_mod"]
    line = not_asked_line(scenario, outcome) or ""
    assert line.startswith("extra_config.read_mod (did you mean 'read_mode'?); moriio asked for: ")
    assert ", transfer_timeout" in line


@pytest.mark.parametrize("connector", ["moriio", "hybrid"])
def test_nothing_is_told_of_what_is_read(connector: str) -> None:
    """The run is the same as ever, too: what is watched reads as it did."""
    scenario = msgspec.structs.replace(
        with_settings(read_mode="true", transfer_timeout=9), connector=connector
    )
    outcome = run(scenario).outcome
    assert outcome.passed
    assert not_asked_line(scenario, outcome) is None


def test_a_colocated_engine_asks_for_nothing() -> None:
    """It has no connector that could."""
    scenario = msgspec.structs.replace(with_settings(port=9), topology=Topology(colocated=True))
    line = not_asked_line(scenario, run(scenario).outcome)
    assert line == "extra_config.port; a colocated engine has no connector"


@pytest.mark.parametrize(
    ("look", "asked"),
    [
        (lambda settings: settings["port"], {"port"}),
        (lambda settings: settings.get("other", 1), {"other"}),
        (lambda settings: "port" in settings, {"port"}),
        (lambda settings: settings.pop("other", 1), {"other"}),
        (lambda settings: settings.setdefault("port", 1), {"port"}),
        (lambda settings: copy.deepcopy(settings).get("port"), {"port"}),
        (lambda settings: {**settings}, {*GIVEN}),
        (dict, {*GIVEN}),
        (lambda settings: settings.copy(), {*GIVEN}),
        (lambda settings: settings | {"port": 1}, {*GIVEN}),
        (lambda settings: {"port": 1} | settings, {*GIVEN}),
        (lambda settings: [*settings.keys()], {*GIVEN}),
        (lambda settings: [*settings.values()], {*GIVEN}),
        (lambda settings: [*settings.items()], {*GIVEN}),
        (copy.deepcopy, set()),
        (repr, set()),
    ],
)
def test_each_way_to_look_counts(look: Callable[[Any], Any], asked: set[str]) -> None:
    """By name, or all at once; and each answers as a dict does."""
    noted: set[str] = set()
    assert look(WatchedSettings(GIVEN, noted)) == look(dict(GIVEN))
    assert noted == asked
