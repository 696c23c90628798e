"""Single settings on top of a scenario, as ``--set KEY=VALUE`` gives them."""

from __future__ import annotations

import pytest

from sim.errors import UsageError
from sim.scenario import Scenario, TraceWorkload, UniformWorkload, with_settings


def test_short_names_and_dotted_paths_name_the_same_settings() -> None:
    """Values are YAML, and everything else stays."""
    short = with_settings(
        Scenario(seed=5), {"max_num_seqs": "2", "async_scheduling": "false", "geometry": "real"}
    )
    dotted = with_settings(
        Scenario(seed=5),
        {"engine.max_num_seqs": "2", "engine.async_scheduling": "false", "geometry": "real"},
    )
    assert short == dotted
    assert (short.engine.max_num_seqs, short.engine.async_scheduling, short.seed) == (2, False, 5)
    assert short.geometry == "real"


def test_settings_reach_into_the_workload_that_is_there() -> None:
    """Also when an earlier setting has just put it there."""
    assert with_settings(Scenario(), {"requests": "3"}).workload.requests == 3
    changed = with_settings(Scenario(), {"workload": "{kind: trace, path: t}", "time_scale": "0.5"})
    assert changed.workload == TraceWorkload(path="t", time_scale=0.5)


def test_a_setting_may_be_a_whole_mapping() -> None:
    """What it leaves out gets its default."""
    value = "{kind: uniform, requests: 2, prompt_tokens: [4, 8], output_tokens: [1, 2]}"
    workload = with_settings(Scenario(), {"workload": value}).workload
    assert workload == UniformWorkload(requests=2, prompt_tokens=(4, 8), output_tokens=(1, 2))


def test_settings_of_the_connector_are_free() -> None:
    """What a connector knows is its own business, to any depth."""
    settings = {"extra_config.transfer_timeout": "2.5", "extra_config.a.b": "[1]"}
    scenario = with_settings(Scenario(extra_config={"backend": "rdma"}), settings)
    assert scenario.extra_config == {
        "backend": "rdma",
        "transfer_timeout": 2.5,
        "a": {"b": [1]},
    }


def test_settings_are_checked_together() -> None:
    """Two that only fit together may come in any order."""
    base = Scenario()
    two = with_settings(base, {"producers": "2"})
    back = with_settings(two, {"colocated": "true", "producers": "1"})
    assert back.num_engines == 1
    assert base == Scenario()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tp_siz": "2"}, "--set tp_siz: unknown key (did you mean 'tp_size'?); faultlab schema"),
        ({"router.reqests": "2"}, "--set router.reqests: unknown key"),
        ({"tp_size": "two"}, "--set: engine.tp_size: is 'two', expected an integer, 1 or more"),
        ({"step_times.host_us": "-1"}, "--set: engine.step_times.host_us: is -1, expected"),
        ({"model": "gpt"}, "--set: model: unknown model 'gpt'"),
        ({"seed": "["}, "--set seed:1:2: not valid YAML"),
        ({"extra_config": "3", "extra_config.b": "3"}, "--set extra_config.b: extra_config is 3"),
        ({"kind": "uniform"}, "--set: workload.rate_rps: unknown key; accepted: kind, requests, "),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(settings: dict[str, str], message: str) -> None:
    """The message names the key and what is accepted."""
    with pytest.raises(UsageError) as caught:
        with_settings(Scenario(), settings)
    assert str(caught.value).startswith(message)


def test_the_list_of_valid_keys_is_complete() -> None:
    """Every key of the scenario, of its engines, its router and its kind of workload."""
    with pytest.raises(UsageError) as caught:
        with_settings(Scenario(), {"?": "1"})
    for key in ("seed", "engine.executor", "router.holds", "workload.rate_rps", "extra_config."):
        assert key in str(caught.value)
    assert "time_scale" not in str(caught.value)
