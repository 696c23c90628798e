"""Every kind of local hit, around the ends of three blocks, in all load modes and variants."""

from __future__ import annotations

import pytest

from tests.scenario.hit_cells import ALL, SERVED, colocated_tokens, result_of, scenario

pytestmark = pytest.mark.soak

VARIANTS: dict[str, dict[str, str]] = {
    "plain": {},
    "v1-runner": {"model_runner": "v1"},
    "multi-process": {"executor": "multi-process"},
    "small-chunks": {"max_num_batched_tokens": "256"},
    "perturbed": {"perturb": "true"},
    "full-check": {"check": "full"},
}


# vLLM's V1 runner does not speculate with DSpark.
CASES = [
    (variant, name)
    for variant in VARIANTS
    for name in SERVED
    if (variant, name) != ("v1-runner", "kimi-linear-dspark")
]


@pytest.mark.parametrize(("variant", "name"), CASES)
@pytest.mark.parametrize("load", ["async", "sync"])
@pytest.mark.parametrize("is_async", ["true", "false"])
def test_only_the_last_token_of_a_prompt_is_computed(
    variant: str, name: str, load: str, is_async: str
) -> None:
    """No rule is broken, and the answers are those of a colocated engine."""
    settings = {
        "extra_config": f"{{load_mode: {load}}}",
        "async_scheduling": is_async,
        **VARIANTS[variant],
    }
    result = result_of(scenario(SERVED[name], settings, ALL))
    assert result.outcome.violations == []
    expected = colocated_tokens(name, ALL)
    assert {request: result.tokens[request] for request in expected} == expected
    assert result.kinds >= SERVED[name].kinds
    assert all(hit.computed_from == hit.prompt - 1 for hit in result.hits.values())
