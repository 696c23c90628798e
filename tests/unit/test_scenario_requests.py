"""From a scenario to its requests, and to the size of the caches they need."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import UsageError
from sim.kernel import Seed
from sim.scenario import (
    GeneratedWorkload,
    Scenario,
    TraceWorkload,
    default_num_blocks,
    loads,
    longest_request,
    workload_of,
)
from sim.workload import RequestSpec, Segment, TraceError

INLINE = """
workload:
  kind: inline
  requests:
    - {request_id: a, prompt: [[0, 512], [7, 100]], max_tokens: 16}
    - {request_id: b, prompt: [[0, 512], [8, 5]], max_tokens: 1, arrival_s: 1.5}
"""


def spec(prompt: int, output: int = 1) -> RequestSpec:
    return RequestSpec("a", 0, (Segment(1, prompt),), output)


def requests_of(text: str, seed: int = 0) -> list[RequestSpec]:
    return workload_of(loads(text), Seed(seed).stream("workload"))


def test_inline_requests_are_what_is_written() -> None:
    """Times in seconds, prompts as segments."""
    assert requests_of(INLINE) == [
        RequestSpec("a", 0, (Segment(0, 512), Segment(7, 100)), 16),
        RequestSpec("b", 1_500_000_000, (Segment(0, 512), Segment(8, 5)), 1),
    ]


def test_a_trace_is_cut_scaled_and_capped(tmp_path: Path) -> None:
    """In this order."""
    trace = tmp_path / "t.jsonl"
    line = '{"timestamp": %d, "input_length": 400, "output_length": 40}\n'
    trace.write_text("".join(line % (1000 * number) for number in range(3)))
    workload = TraceWorkload(
        path=str(trace), requests=2, length_scale=0.5, time_scale=0.1, max_output_tokens=7
    )
    made = workload_of(Scenario(workload=workload), Seed(0).stream("workload"))
    assert [(r.arrival_ns, r.prompt_tokens, r.max_tokens) for r in made] == [
        (0, 200, 7),
        (100_000_000, 200, 7),
    ]


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    """It is only read when requests are asked for."""
    scenario = Scenario(workload=TraceWorkload(path=str(tmp_path / "t.jsonl")))
    with pytest.raises(TraceError, match=r"t\.jsonl: cannot be read"):
        workload_of(scenario, Seed(0).stream("workload"))


@pytest.mark.parametrize(
    "text",
    [
        "workload: {kind: generated, requests: 20, length_scale: 0.1, max_prompt_tokens: 500}",
        "workload: {kind: uniform, requests: 9, prompt_tokens: [4, 99], output_tokens: [1, 9]}",
    ],
)
def test_drawn_requests_follow_from_the_seed(text: str) -> None:
    """The same seed gives the same requests, another one others."""
    assert requests_of(text, 1) == requests_of(text, 1)
    assert requests_of(text, 1) != requests_of(text, 2)


def test_a_cap_holds_for_generated_prompts() -> None:
    """And lengths are scaled before."""
    workload = GeneratedWorkload(
        requests=30, length_scale=0.01, max_prompt_tokens=60, max_output_tokens=3
    )
    made = workload_of(Scenario(workload=workload), Seed(0).stream("workload"))
    assert max(r.prompt_tokens for r in made) == 60
    assert min(r.prompt_tokens for r in made) < 30
    assert max(r.max_tokens for r in made) == 3


def test_a_request_longer_than_the_model_is_refused() -> None:
    """The engine would refuse it, too, in the middle of the run."""
    text = "{request_id: a, prompt: [[1, 262144]], max_tokens: 1}"
    with pytest.raises(UsageError, match=r"a has 262145 tokens.*for 262144; shorten its"):
        requests_of(f"workload: {{kind: inline, requests: [{text}]}}")


@pytest.mark.parametrize(
    "entry",
    [
        "holds: [{request: rq-7, seconds: 1}]",
        "aborts: [{request: rq-7, at_s: 1}]",
        "retries: [{request: rq-7, after_s: 1}]",
    ],
)
def test_something_done_to_a_request_that_there_is_not_is_refused(entry: str) -> None:
    """Such a run would silently be another one than was meant."""
    text = f"workload: {{kind: generated, requests: 8}}\nrouter: {{{entry}}}"
    with pytest.raises(UsageError, match=r"'rq-7' \(did you mean .*there are 8: req-0 to req-7"):
        requests_of(text)


def test_a_single_request_is_named_as_the_only_one() -> None:
    request = "{request_id: question, prompt: [[1, 9]], max_tokens: 2}"
    text = f"workload: {{kind: inline, requests: [{request}]}}\nrouter: "
    with pytest.raises(UsageError, match=r"is called 'late'; the only one is question$"):
        requests_of(text + "{holds: [{request: late, seconds: 1}]}")


def test_the_cache_holds_the_largest_request_twice_and_the_average_ones_beside_it() -> None:
    """One block each to look ahead, and the null block."""
    requests = [spec(159), spec(31), spec(31)]  # 10, 2 and 2 blocks of 16, and one more each
    assert default_num_blocks(requests, 16, max_num_seqs=2) == 1 + 2 * 11 + -(-2 * 17 // 3)
    assert longest_request(requests) == 160


@given(
    prompts=st.lists(st.integers(1, 130_000), min_size=1, max_size=40),
    max_num_seqs=st.integers(1, 300),
    num_ranks=st.integers(1, 16),
)
def test_the_caches_of_a_run_stay_below_two_gibibytes(
    prompts: list[int], max_num_seqs: int, num_ranks: int
) -> None:
    """And the largest request still fits."""
    requests = [spec(prompt, 100) for prompt in prompts]
    bytes_per_token = Fraction(1000)
    blocks = default_num_blocks(
        requests, 16, max_num_seqs, bytes_per_token=bytes_per_token, num_ranks=num_ranks
    )
    assert blocks * 16 * bytes_per_token * num_ranks <= 2 * 1024**3
    assert (blocks - 1) * 16 >= longest_request(requests)


def test_a_request_too_large_for_the_memory_is_refused_with_the_remedy() -> None:
    """Rather than by the operating system, later."""
    with pytest.raises(UsageError, match=r"126001 tokens.*geometry: reduced"):
        default_num_blocks([spec(126_000)], 16, 64, bytes_per_token=131_072, num_ranks=2)


def test_memory_for_the_largest_request_and_the_null_block_is_enough_and_no_less() -> None:
    """The limit is exact."""
    requests = [spec(15)]  # 1 block of 16, and one more; with the null block 3
    third = Fraction(2 * 1024**3, 3 * 16)
    assert default_num_blocks(requests, 16, 64, bytes_per_token=third) == 3
    with pytest.raises(UsageError):
        default_num_blocks(requests, 16, 64, bytes_per_token=third + 1)
