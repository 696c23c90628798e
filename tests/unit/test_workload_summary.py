"""The figures of a workload, and above all the shared share of its prompts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.workload import RequestSpec, Segment, describe, prefix_share, prompt_token_ids

segments = st.builds(Segment, st.integers(0, 2), st.sampled_from([20, 30]))
prompts = st.lists(segments, min_size=1, max_size=4).map(tuple)


def requests(*prompts: tuple[Segment, ...]) -> list[RequestSpec]:
    """One request a prompt, a second apart."""
    return [
        RequestSpec(f"req-{index}", index * 1_000_000_000, prompt, max_tokens=index + 1)
        for index, prompt in enumerate(prompts)
    ]


def test_a_summary_counts_requests_tokens_and_time() -> None:
    """Percentiles are values that occur, by nearest rank."""
    summary = describe(requests(*[(Segment(index, 10 * (index + 1)),) for index in range(100)]))
    assert summary == {
        "requests": 100,
        "prompt_tokens_p50": 500,
        "prompt_tokens_p99": 990,
        "output_tokens_p50": 50,
        "output_tokens_p99": 99,
        "prefix_share": 0.0,
        "duration_s": 99.0,
    }


@pytest.mark.parametrize(
    ("second", "shared"),
    [
        ((Segment(1, 512), Segment(2, 88)), 600),  # the same prompt again
        ((Segment(1, 512), Segment(3, 88)), 512),  # parts after a block
        ((Segment(1, 512), Segment(2, 40)), 552),  # ends inside a block
        ((Segment(1, 100),), 100),
        ((Segment(1, 100), Segment(2, 88)), 100),  # the second block stands elsewhere
        ((Segment(2, 88), Segment(1, 512)), 0),  # known blocks that do not begin the prompt
    ],
)
def test_only_a_known_beginning_counts_as_shared(second: tuple[Segment, ...], shared: int) -> None:
    """The count stops at the first token that no earlier prompt had in this place."""
    specs = requests((Segment(1, 512), Segment(2, 88)), second)
    total = sum(spec.prompt_tokens for spec in specs)
    assert prefix_share(specs) == pytest.approx(shared / total)


@given(workload=st.lists(prompts, min_size=1, max_size=6))
def test_the_share_agrees_with_a_count_over_tokens(workload: list[tuple[Segment, ...]]) -> None:
    """The trie over segments finds what a comparison of every pair of prompts finds."""
    specs = requests(*workload)
    tokens = [prompt_token_ids(spec) for spec in specs]
    shared = sum(
        max((common_prefix(earlier, ids) for earlier in tokens[:index]), default=0)
        for index, ids in enumerate(tokens)
    )
    total = sum(len(ids) for ids in tokens)
    assert prefix_share(specs) == pytest.approx(shared / total)


def common_prefix(left: npt.NDArray[np.int32], right: npt.NDArray[np.int32]) -> int:
    """How many leading tokens two prompts share."""
    n = min(len(left), len(right))
    different = np.flatnonzero(left[:n] != right[:n])
    return int(different[0]) if len(different) else n


def test_a_workload_without_requests_has_no_figures() -> None:
    """There is no median of nothing."""
    with pytest.raises(ValueError, match="without requests"):
        describe([])
