"""What a workload looks like in a few figures, above all how much its prompts share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from sim.units import ns_to_seconds
from sim.workload.request import RequestSpec, Segment


class WorkloadSummary(TypedDict):
    """Token counts are percentiles by nearest rank; ``prefix_share`` is a ratio."""

    requests: int
    prompt_tokens_p50: int
    prompt_tokens_p99: int
    output_tokens_p50: int
    output_tokens_p99: int
    prefix_share: float
    duration_s: float


def describe(requests: Sequence[RequestSpec]) -> WorkloadSummary:
    """Figures of a workload; ``duration_s`` is from the first arrival to the last."""
    if not requests:
        raise ValueError("cannot describe a workload without requests")
    prompts = sorted(request.prompt_tokens for request in requests)
    outputs = sorted(request.max_tokens for request in requests)
    arrivals = [request.arrival_ns for request in requests]
    return WorkloadSummary(
        requests=len(requests),
        prompt_tokens_p50=_percentile(prompts, 50),
        prompt_tokens_p99=_percentile(prompts, 99),
        output_tokens_p50=_percentile(outputs, 50),
        output_tokens_p99=_percentile(outputs, 99),
        prefix_share=prefix_share(requests),
        duration_s=ns_to_seconds(max(arrivals) - min(arrivals)),
    )


def prefix_share(requests: Sequence[RequestSpec]) -> float:
    """Share of all prompt tokens that lie in a prefix an earlier request had already sent.

    It is what a prefix cache of unlimited size, with blocks of one token, would hit.
    """
    seen = _SeenPrefixes()
    hits = sum(seen.add(request.prompt) for request in requests)
    return hits / sum(request.prompt_tokens for request in requests)


class _SeenPrefixes:
    """A trie over segments. A node is an integer, 0 the root."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, Segment], int] = {}
        self._longest: dict[tuple[int, int], int] = {}

    def add(self, prompt: tuple[Segment, ...]) -> int:
        """Remember ``prompt``; the number of its leading tokens that were known before."""
        node, known = 0, 0
        for segment in prompt:
            place = (node, segment.content_id)
            longest = self._longest.get(place, 0)
            self._longest[place] = max(longest, segment.n_tokens)
            known += min(longest, segment.n_tokens)
            # Past the first unknown segment every node is new, so nothing more is known there.
            node = self._children.setdefault((node, segment), len(self._children) + 1)
        return known


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """Nearest rank: the smallest value that at least ``percent`` of the values do not exceed."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[rank - 1]
