"""What the synthetic drafter guesses, and what that makes of a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import UsageError
from sim.model.config import build_vllm_config
from sim.model.content import next_token, prefix_hashes
from sim.model.presets import PRESETS, get_preset
from sim.model.speculation import (
    HAND_OFF_REACH,
    Speculation,
    accepted_drafts,
    after_hand_off,
    draft_token,
)
from sim.scenario import Scenario, with_settings

VOCAB = 32_000
PROMPT = list(range(100, 160))
OFFERED = [(name, method) for name, preset in PRESETS.items() for method in preset.drafters]


def speculation(drafts: int = 3, acceptance: int = 700) -> Speculation:
    return Speculation("mtp", drafts, acceptance)


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_a_drafter_that_read_wrong_bytes_is_wrong(prefix: int, deviation: int) -> None:
    """For certain, so that wrong bytes are seen in the acceptance."""
    assert draft_token(prefix, deviation, VOCAB, 1000) != next_token(prefix, 0, VOCAB)


@pytest.mark.parametrize("acceptance", [0, 300, 1000])
def test_drafts_are_right_as_often_as_was_asked_for(acceptance: int) -> None:
    """Over many prefixes; a draft is a function of its prefix."""
    hashes = [int(h) for h in prefix_hashes(range(4000))]
    right = sum(draft_token(h, 0, VOCAB, acceptance) == next_token(h, 0, VOCAB) for h in hashes)
    assert abs(right - 4 * acceptance) < 120


@given(st.integers(1, 8), st.integers(0, 1000), st.integers(1, 60))
def test_a_request_gets_all_its_tokens(drafts: int, acceptance: int, count: int) -> None:
    """Each step gives the accepted drafts and one token more, and no step is one too many."""
    steps = accepted_drafts(PROMPT, count, VOCAB, speculation(drafts, acceptance))
    tokens = [1 + accepted for accepted in steps]
    assert 1 + sum(tokens) >= count
    assert 1 + sum(tokens[:-1]) < count or not steps
    assert all(accepted <= drafts for accepted in steps)


def test_an_odd_row_spoils_the_next_tokens_only() -> None:
    """Those within reach are rejected, and then the drafter is as good as ever."""
    sure = speculation(2, 1000)
    odd = accepted_drafts(PROMPT, 40, VOCAB, sure, odd_row=len(PROMPT) - 2)
    spoilt = HAND_OFF_REACH - 2
    assert odd[:spoilt] == [0] * spoilt
    assert set(odd[spoilt:]) == {2}


def test_the_odd_row_is_that_of_the_producers_token() -> None:
    """The prompt without its last token, and what a producer samples then."""
    hashes = prefix_hashes(PROMPT[:-1])
    sampled = next_token(int(hashes[-1]), 0, VOCAB)
    expected = int(prefix_hashes([*PROMPT[:-1], sampled])[-1])
    assert after_hand_off(int(hashes[-1]), len(hashes), VOCAB) == expected


@pytest.mark.parametrize(("name", "method"), OFFERED)
def test_vllm_takes_the_drafters_configuration(name: str, method: str) -> None:
    """As its own methods see it: the drafter's layers are marked, and lie in the model's groups."""
    wanted = Speculation(method, 7)  # type: ignore[arg-type]
    preset = get_preset(name)
    config = build_vllm_config(preset, num_blocks=100, speculation=wanted)
    assert config.num_speculative_tokens == config.num_lookahead_tokens == 7
    assert config.speculative_config is not None
    needs_next_token = config.speculative_config.needs_eagle_block_drop()
    assert wanted.lookahead == int(needs_next_token)
    specs = preset.cache_specs(1, "reduced", config)
    drafted = {layer for layer, spec in specs.items() if spec.is_draft}
    assert drafted == set(preset.drafter(method).layers["reduced"])
    assert config.cache_config.block_size == preset.tokens_per_block(1, "reduced", 7)


def test_a_method_that_a_model_does_not_offer_is_refused() -> None:
    """With what it does offer."""
    with pytest.raises(UsageError, match=r"llama has no drafter .* 'mtp'; it offers: none"):
        get_preset("llama").drafter("mtp")
    with pytest.raises(UsageError, match="it offers: dspark"):
        get_preset("kimi-linear").drafter("mtp")


def test_settings_reach_into_what_is_null_by_default() -> None:
    """``--set speculation.method=mtp`` makes a mapping of it, and a wrong key is told."""
    scenario = with_settings(Scenario(), {"speculation.method": "mtp"})
    assert scenario.engine.speculation == Speculation("mtp")
    with pytest.raises(UsageError, match=r"engine.speculation.method: is 'ngram', expected one of"):
        with_settings(Scenario(), {"speculation.method": "ngram"})
    with pytest.raises(UsageError, match="at most 32"):
        with_settings(Scenario(), {"speculation.method": "mtp", "num_speculative_tokens": "33"})
