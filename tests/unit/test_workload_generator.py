"""The built-in generator has the shape it claims, for any seed."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.workload import RequestSpec, Segment, WorkloadError, describe, generate, uniform
from sim.workload.shape import PARTS, QuantileTable

N = 2000


@pytest.fixture(params=[0, 1, 2**64 + 7], scope="module")
def workload(request: pytest.FixtureRequest) -> list[RequestSpec]:
    """2,000 requests, as the published figures are checked on."""
    seed: int = request.param
    return generate(N, random.Random(seed))


def test_lengths_have_the_published_percentiles(workload: list[RequestSpec]) -> None:
    """Prompts: 6,909 at the median, 85,399 at the 99th percentile; outputs: 350."""
    summary = describe(workload)
    assert summary["prompt_tokens_p50"] == pytest.approx(6_909, rel=0.1)
    assert summary["prompt_tokens_p99"] == pytest.approx(85_399, rel=0.1)
    assert summary["output_tokens_p50"] == pytest.approx(350, rel=0.1)


def test_a_bit_more_than_a_third_of_prompt_tokens_is_shared(workload: list[RequestSpec]) -> None:
    """The published prefix hit ratio is 37 %."""
    assert describe(workload)["prefix_share"] == pytest.approx(0.37, abs=0.04)


def test_most_prompts_share_only_the_system_prompt(workload: list[RequestSpec]) -> None:
    """As in the trace: all begin alike, and about four in ten go on as an earlier one did."""
    assert {spec.prompt[0] for spec in workload} == {Segment(0, 512)}
    continued = sum(len(spec.prompt) > 2 for spec in workload) / N
    assert 0.3 < continued < 0.5


def test_requests_arrive_in_bursts(workload: list[RequestSpec]) -> None:
    """About ten at one instant, then nothing for 2.9 s; evenly spread, no instant had two."""
    bursts = Counter(spec.arrival_ns for spec in workload)
    assert N / len(bursts) == pytest.approx(10, rel=0.1)
    assert max(bursts.values()) > 15
    instants = sorted(bursts)
    gaps = {later - earlier for earlier, later in pairwise(instants)}
    assert gaps == {2_941_176_471}


def test_nobody_continues_a_conversation_within_its_own_burst(workload: list[RequestSpec]) -> None:
    """A next turn needs the answer to the last one."""
    first_seen: dict[Segment, int] = {}
    for spec in workload:
        *beginning, new_text = spec.prompt
        assert all(first_seen[segment] < spec.arrival_ns for segment in beginning[1:])
        first_seen[new_text] = spec.arrival_ns


def test_every_prompt_ends_with_text_of_its_own(workload: list[RequestSpec]) -> None:
    """No prompt is only a copy: contents that are new are new once."""
    ids = [spec.prompt[-1].content_id for spec in workload]
    assert len(set(ids)) == N


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.6, 0.8])
def test_the_shared_share_is_what_was_asked_for(share: float) -> None:
    """From nothing at all to four fifths."""
    specs = generate(N, random.Random(3), shared_prefix_share=share)
    assert describe(specs)["prefix_share"] == pytest.approx(share, abs=0.02)
    if share == 0:
        assert describe(specs)["prefix_share"] == 0


@pytest.mark.parametrize("rate_rps", [0.5, 200.0])
def test_the_rate_is_what_was_asked_for(rate_rps: float) -> None:
    """Bursts keep their size and move closer."""
    duration_s = describe(generate(N, random.Random(4), rate_rps=rate_rps))["duration_s"]
    assert N / duration_s == pytest.approx(rate_rps, rel=0.1)


def test_one_seed_gives_one_workload_and_another_seed_another() -> None:
    """The stream's state decides everything."""
    first, again, other = (generate(50, random.Random(seed)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@given(n=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_requests_are_numbered_and_in_order_of_arrival(n: int, seed: int) -> None:
    """Any size works, the first request arrives at 0."""
    specs = generate(n, random.Random(seed))
    assert [spec.request_id for spec in specs] == [f"req-{index}" for index in range(n)]
    arrivals = [spec.arrival_ns for spec in specs]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0


def test_a_shorter_workload_begins_the_longer_one() -> None:
    """So taking requests away leaves the others as they were."""
    assert generate(230, random.Random(9))[:37] == generate(37, random.Random(9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n is 0, must be an integer, 1 or more"),
        ({"rate_rps": 0.0}, "rate_rps is 0.0, must be a finite number above 0"),
        ({"shared_prefix_share": 0.81}, "shared_prefix_share is 0.81, must be from 0 to 0.8"),
        ({"shared_prefix_share": -0.1}, "shared_prefix_share is -0.1, must be from 0 to 0.8"),
    ],
)
def test_an_impossible_workload_is_refused(arguments: dict[str, float], message: str) -> None:
    """The message names the argument and what is accepted."""
    with pytest.raises(WorkloadError, match=message):
        generate(**({"n": 10, "rng": random.Random(0)} | arguments))  # type: ignore[arg-type]


@given(seed=st.integers(0, 2**32), low=st.integers(1, 50), more=st.integers(0, 50))
def test_uniform_lengths_stay_within_their_bounds(seed: int, low: int, more: int) -> None:
    """Bounds are inclusive, arrivals even, and nothing is shared."""
    bounds = (low, low + more)
    specs = uniform(
        20, random.Random(seed), prompt_tokens=bounds, output_tokens=bounds, interval_ns=5
    )
    for spec in specs:
        assert low <= spec.prompt_tokens <= low + more
        assert low <= spec.max_tokens <= low + more
    assert [spec.arrival_ns for spec in specs] == [5 * index for index in range(20)]
    assert describe(specs)["prefix_share"] == 0


@pytest.mark.parametrize("bounds", [(0, 5), (6, 5)])
@pytest.mark.parametrize("name", ["prompt_tokens", "output_tokens"])
def test_bounds_that_hold_no_length_are_refused(name: str, bounds: tuple[int, int]) -> None:
    """The message names the argument and the rule."""
    arguments = {"prompt_tokens": (1, 2), "output_tokens": (1, 2)} | {name: bounds}
    with pytest.raises(WorkloadError, match=rf"{name} is .*, must be \(low, high\)"):
        uniform(1, random.Random(0), interval_ns=0, **arguments)


def test_a_negative_interval_is_refused() -> None:
    """Requests cannot arrive before the first one."""
    with pytest.raises(WorkloadError, match="interval_ns is -1"):
        uniform(1, random.Random(0), prompt_tokens=(1, 1), output_tokens=(1, 1), interval_ns=-1)


def test_a_quantile_table_is_linear_between_its_knots() -> None:
    """A knot's value stands at the knot's position; beyond the last one is an error."""
    table = QuantileTable((0, 10), (500, 20), (1000, 120))
    assert [table.at(PARTS * q // 100) for q in (0, 25, 50, 75)] == [10, 15, 20, 70]
    assert table.at(PARTS - 1) == 119
    with pytest.raises(ValueError, match="position is 1000000"):
        table.at(PARTS)
