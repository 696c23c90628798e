"""Prompts are made from their description, lazily and always the same."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.workload import RequestSpec, Segment, prompt_token_ids
from sim.workload.tokens import FIRST_CONTENT_TOKEN, content_token_ids

content_ids = st.integers(-(2**63), 2**63 - 1)
segments = st.builds(Segment, content_ids, st.integers(1, 600))


def request(*prompt: Segment) -> RequestSpec:
    """A request of which only the prompt matters."""
    return RequestSpec("req-0", arrival_ns=0, prompt=prompt, max_tokens=1)


@given(prompt=st.lists(segments, min_size=1, max_size=5), seed=st.integers(0, 2**70))
def test_a_prompt_has_as_many_tokens_as_it_says(prompt: list[Segment], seed: int) -> None:
    """The array has the spec's count, type int32, and every id is inside the vocabulary."""
    spec = request(*prompt)
    ids = prompt_token_ids(spec, seed=seed, vocab_size=1000)
    assert ids.shape == (spec.prompt_tokens,)
    assert ids.dtype == np.int32
    assert ids.min() >= FIRST_CONTENT_TOKEN
    assert ids.max() < 1000


@given(content_id=content_ids, short=st.integers(1, 600), more=st.integers(0, 600))
def test_a_shorter_piece_of_a_content_begins_the_longer_one(
    content_id: int, short: int, more: int
) -> None:
    """A partial block holds the first tokens of the full block with the same id."""
    longer = content_token_ids(content_id, short + more)
    np.testing.assert_array_equal(content_token_ids(content_id, short), longer[:short])


def test_equal_ids_mean_equal_tokens_wherever_they_stand() -> None:
    """The tokens of a segment do not depend on what comes before it."""
    first = prompt_token_ids(request(Segment(7, 512), Segment(8, 100)))
    second = prompt_token_ids(request(Segment(9, 33), Segment(8, 100)))
    np.testing.assert_array_equal(first[512:], second[33:])


@given(pair=st.lists(content_ids, min_size=2, max_size=2, unique=True))
def test_different_ids_mean_different_tokens(pair: list[int]) -> None:
    """Two contents agree about as often as chance has it, which for 64 tokens is hardly ever."""
    left, right = (content_token_ids(content_id, 64) for content_id in pair)
    assert (left == right).sum() <= 4


def test_the_seed_changes_every_content() -> None:
    """Two workload seeds give two texts."""
    agree = content_token_ids(7, 512, seed=1) == content_token_ids(7, 512, seed=2)
    assert agree.sum() <= 4


def test_tokens_spread_over_the_whole_vocabulary() -> None:
    """Both ends of the vocabulary are used, and the mean lies in the middle."""
    ids = content_token_ids(3, 100_000, vocab_size=116)
    assert set(ids.tolist()) == set(range(16, 116))
    assert ids.mean() == pytest.approx(65.5, abs=0.5)


def test_tokens_are_those_of_splitmix64() -> None:
    """An independent scalar splitmix64 gives the same ids, so old artifacts keep replaying."""
    mask = 2**64 - 1

    def splitmix64(state: int) -> int:
        z = state & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    assert splitmix64(gamma) == 0xE220A8397B1DCDAF  # published first output for seed 0
    key = splitmix64((splitmix64(5 + gamma) ^ 7) + gamma)
    expected = [16 + (splitmix64(key + gamma * i) >> 32) % (32_000 - 16) for i in range(1, 9)]
    assert content_token_ids(7, 8, seed=5).tolist() == expected


def test_a_vocabulary_without_room_for_content_is_refused() -> None:
    """The message says how many ids are reserved."""
    with pytest.raises(ValueError, match="vocab_size is 16, must be above 16: ids 0 to 15"):
        content_token_ids(1, 1, vocab_size=16)


@pytest.mark.parametrize(
    ("arrival_ns", "prompt", "max_tokens", "message"),
    [
        (-1, (Segment(0, 1),), 1, "arrival_ns is -1"),
        (0, (Segment(0, 1),), 0, "max_tokens is 0"),
        (0, (), 1, "at least one segment"),
        (0, (Segment(0, 1), Segment(1, 0)), 1, "at least one token"),
    ],
)
def test_a_request_that_no_engine_accepts_is_refused(
    arrival_ns: int, prompt: tuple[Segment, ...], max_tokens: int, message: str
) -> None:
    """The error names the request and the value."""
    with pytest.raises(ValueError, match=f"^req-9: .*{message}"):
        RequestSpec("req-9", arrival_ns=arrival_ns, prompt=prompt, max_tokens=max_tokens)


def test_a_request_survives_encoding() -> None:
    """What is written to a scenario is read back equal."""
    spec = request(Segment(-3, 512), Segment(2**62, 4))
    decoded = msgspec.json.decode(msgspec.json.encode(spec), type=RequestSpec)
    assert decoded == spec
    assert decoded.prompt_tokens == 516
