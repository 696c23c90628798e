"""The connector reads what a consumer lacks and no more, whatever vLLM found there (R8, R9, R14).

What became of each prompt is looked up, not assumed: how much vLLM found, whether its groups
agreed, how many tokens came from outside, which blocks were read, and where the first forward pass
began. That it read right bytes is what the oracles say, and the answers are those of an engine that
does everything itself.
"""

from __future__ import annotations

import pytest
from hit_cells import SERVED, Result, Settings, colocated_tokens, result_of, scenario

every_model = pytest.mark.parametrize("name", SERVED)
STATE_ALONE = ("full", "diverged", "1")


def check(name: str, result: Result) -> None:
    """No rule is broken, and all answers are those of a colocated engine."""
    assert result.outcome.violations == []
    assert result.outcome.requests["length"] == result.outcome.requests["total"]
    expected = colocated_tokens(name)
    assert {request: result.tokens[request] for request in expected} == expected


@every_model
@pytest.mark.parametrize(("load", "is_async"), [("async", "true"), ("sync", "false")])
def test_only_the_last_token_of_a_prompt_is_computed(name: str, load: str, is_async: str) -> None:
    """Of no prompt is anything computed again that either side has."""
    settings: Settings = {
        "extra_config": f"{{load_mode: {load}}}",
        "async_scheduling": is_async,
    }
    result = result_of(scenario(SERVED[name], settings))
    check(name, result)
    assert result.kinds >= SERVED[name].kinds
    for request, hit in result.hits.items():
        assert hit.computed_from == hit.prompt - 1, request
        assert (hit.read is not None) == (hit.external > 0), request
        assert hit.waits == (hit.external > 0 and (load == "async" or hit.kind == STATE_ALONE))


@pytest.mark.parametrize("name", [n for n in SERVED if STATE_ALONE in SERVED[n].kinds])
def test_of_a_prompt_that_only_lacks_its_state_only_ring_and_state_are_read(name: str) -> None:
    """The payload entries in front are of attention, those behind of rings and states."""
    result = result_of(scenario(SERVED[name], {}))
    alone = [hit for hit in result.hits.values() if hit.kind == STATE_ALONE]
    assert len(alone) >= 5
    for hit in alone:
        assert hit.read is not None
        attention, *others = hit.read
        assert attention == 0
        assert others == [1] * len(others)


def held(names: list[str], seconds: float) -> Settings:
    """Keep requests from their consumer until their producer has let go of their blocks."""
    listed = ", ".join(f"{{request: {name}, seconds: {seconds}}}" for name in names)
    return {
        "router.holds": f"[{listed}]",
        "extra_config": "{defer_timeout: 1}",
        "kv_load_failure_policy": "recompute",
    }


def names(name: str, *, earlier: bool) -> list[str]:
    requests = scenario(SERVED[name], {}).workload.requests
    return [r.request_id for r in requests if r.request_id.startswith("before-") == earlier]


@every_model
def test_after_local_prefills(name: str) -> None:
    """The earlier prompts' loads fail, so that the consumer prefills them in chunks and then has
    states of its own at ends of blocks."""
    result = result_of(scenario(SERVED[name], held(names(name, earlier=True), 2.0)))
    check(name, result)
    assert result.kinds >= SERVED[name].kinds_after_prefills


@every_model
def test_a_load_that_fails_is_made_up_for_by_computing(name: str) -> None:
    """Whatever was found here: what was promised and did not come is computed."""
    result = result_of(scenario(SERVED[name], held(names(name, earlier=False), 2.0)))
    check(name, result)
    assert result.kinds >= SERVED[name].kinds


@pytest.mark.parametrize("load", ["async", "sync"])
@pytest.mark.parametrize(("name", "blocks"), [("llama", 60), ("kimi-linear-dspark", 120)])
def test_after_evictions(name: str, blocks: int, load: str) -> None:
    """Where blocks are scarce, less is found, by one group or by all, and the rest is read."""
    settings = {"extra_config": f"{{load_mode: {load}}}"}
    ample = result_of(scenario(SERVED[name], settings))
    scarce = result_of(scenario(SERVED[name], {**settings, "num_blocks": str(blocks)}))
    check(name, scarce)
    assert sum(scarce.hits[request].local < hit.local for request, hit in ample.hits.items()) >= 10
    assert all(hit.computed_from == hit.prompt - 1 for hit in scarce.hits.values())
