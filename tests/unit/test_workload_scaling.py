"""Scaled workloads keep what makes them interesting: who shares a prefix with whom."""

from __future__ import annotations

import math
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.workload import RequestSpec, Segment, WorkloadError, prompt_token_ids, scale

# Few ids, so that prompts often share some; one length an id, as in a trace of hash blocks.
blocks = st.lists(st.integers(0, 2), min_size=1, max_size=6)
factors = st.floats(0.001, 4.0)


def request(prompt: list[int], *, arrival_ns: int = 0, max_tokens: int = 100) -> RequestSpec:
    """A request of full 512-token blocks with a last block of 100."""
    segments = [Segment(content_id, 512) for content_id in prompt[:-1]]
    return RequestSpec("req-0", arrival_ns, (*segments, Segment(prompt[-1], 100)), max_tokens)


def common_prefix(left: RequestSpec, right: RequestSpec) -> int:
    """How many leading segments two prompts share."""
    pairs = zip(left.prompt, right.prompt, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


@given(left=blocks, right=blocks, factor=factors)
def test_prompts_share_the_same_blocks_after_scaling(
    left: list[int], right: list[int], factor: float
) -> None:
    """Blocks that were equal stay equal, and their tokens with them."""
    before = [request(left), request(right)]
    after = scale(before, length_scale=factor)
    shared = common_prefix(*before)
    assert common_prefix(*after) >= shared
    n_tokens = sum(segment.n_tokens for segment in after[0].prompt[:shared])
    first, second = (prompt_token_ids(spec)[:n_tokens] for spec in after)
    np.testing.assert_array_equal(first, second)


@given(prompt=blocks, factor=factors, cap=st.integers(1, 3000))
def test_a_cap_cuts_the_end_of_a_prompt(prompt: list[int], factor: float, cap: int) -> None:
    """A capped prompt is a prefix of the uncapped one, as long as the cap allows."""
    (whole,) = scale([request(prompt)], length_scale=factor)
    (cut,) = scale([request(prompt)], length_scale=factor, max_prompt_tokens=cap)
    assert cut.prompt_tokens == min(whole.prompt_tokens, cap)
    np.testing.assert_array_equal(
        prompt_token_ids(cut), prompt_token_ids(whole)[: cut.prompt_tokens]
    )


def test_a_block_is_scaled_to_the_nearest_count_and_never_below_one() -> None:
    """512 tokens at 0.01 are 5; at 0.0001 they are still 1, and so is an output."""
    (small,) = scale([request([1, 2])], length_scale=0.01)
    assert small.prompt == (Segment(1, 5), Segment(2, 1))
    (least,) = scale([request([1, 2])], length_scale=0.0001)
    assert least.prompt == (Segment(1, 1), Segment(2, 1))
    assert least.max_tokens == 1


def test_time_is_scaled_apart_from_lengths() -> None:
    """A tenth of the time means ten times the rate and the same requests."""
    (spec,) = scale([request([1], arrival_ns=3_000_000_000)], time_scale=0.1)
    assert spec == request([1], arrival_ns=300_000_000)


def test_outputs_are_scaled_and_capped() -> None:
    """The cap applies after the factor."""
    (scaled,) = scale([request([1], max_tokens=350)], length_scale=0.1)
    assert scaled.max_tokens == 35
    (capped,) = scale([request([1], max_tokens=350)], length_scale=0.1, max_output_tokens=16)
    assert capped.max_tokens == 16


def test_nothing_changes_without_factors_and_caps() -> None:
    """The default is the workload as it was."""
    specs = [request([1, 2, 3], arrival_ns=5)]
    assert scale(specs) == specs


@pytest.mark.parametrize("name", ["length_scale", "time_scale"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_factor_that_makes_no_workload_is_refused(name: str, value: float) -> None:
    """The message names the factor and what is accepted."""
    with pytest.raises(WorkloadError, match=f"{name} is .*, must be a finite number above 0"):
        scale([], **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_prompt_tokens", "max_output_tokens"])
def test_a_cap_below_one_is_refused(name: str) -> None:
    """None, not 0, means uncapped."""
    with pytest.raises(WorkloadError, match=f"{name} is 0, must be an integer, 1 or more"):
        scale([], **{name: 0})
