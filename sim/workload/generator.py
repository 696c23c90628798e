"""Workloads that need no file: the Mooncake trace's shape, and a plain uniform one.

``generate`` makes conversations. Every prompt begins with one system prompt; a share of them
goes on with the whole prompt of an earlier request, as the next turn of a conversation does, and
adds new text. Requests arrive in bursts: about ten at the same instant, then nothing until the
next burst, at a fixed interval. Answers are not part of later prompts, because what an engine
will answer is not known here.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

from sim.units import SECOND
from sim.workload.checks import WorkloadError, check_count, check_factor, check_range
from sim.workload.request import RequestSpec, Segment
from sim.workload.shape import (
    BURST_REQUESTS,
    MEAN_BURST_REQUESTS,
    MEAN_RATE_RPS,
    OUTPUT_TOKENS,
    PARTS,
    PROMPT_TOKENS,
    StratifiedPositions,
)

_EDGES: Final = 64
SYSTEM_PROMPT: Final = Segment(content_id=0, n_tokens=512)
MOONCAKE_PREFIX_SHARE: Final = 0.37
MAX_PREFIX_SHARE: Final = 0.8

# With a smaller share than this, the system prompt alone would exceed it.
_MIN_SHARE_WITH_SYSTEM_PROMPT: Final = 0.043
_OPEN_CONVERSATIONS: Final = 1000
_NEAREST: Final = 8
_CATCH_UP_REQUESTS: Final = 16


def generate(
    n: int,
    rng: random.Random,
    *,
    rate_rps: float = MEAN_RATE_RPS,
    shared_prefix_share: float = MOONCAKE_PREFIX_SHARE,
) -> list[RequestSpec]:
    """``n`` requests with the Mooncake trace's lengths, sharing and bursts.

    ``rng`` is a stream of the run's seed. ``rate_rps`` is the mean arrival rate; it moves bursts
    closer, not their size. ``shared_prefix_share`` is the share of prompt tokens that an earlier
    prompt already began with; it is met over hundreds of requests, not by the first burst, which
    has nothing to continue. A shorter workload from the same stream state begins the longer one.
    Raises WorkloadError.
    """
    check_count("n", n)
    check_factor("rate_rps", rate_rps)
    if not 0 <= shared_prefix_share <= MAX_PREFIX_SHARE:
        raise WorkloadError(
            f"shared_prefix_share is {shared_prefix_share}, must be from 0 to {MAX_PREFIX_SHARE}"
        )
    prompts = _PromptMaker(rng, shared_prefix_share)
    output_positions = StratifiedPositions(rng)
    interval_ns = round(MEAN_BURST_REQUESTS * SECOND / rate_rps)
    requests: list[RequestSpec] = []
    arrival_ns = 0
    while len(requests) < n:
        size = min(BURST_REQUESTS.at(rng.randrange(PARTS)), n - len(requests))
        burst = [
            RequestSpec(
                request_id=f"req-{len(requests) + index}",
                arrival_ns=arrival_ns,
                prompt=prompts.make(),
                max_tokens=OUTPUT_TOKENS.at(output_positions.draw()),
            )
            for index in range(size)
        ]
        prompts.open_conversations(burst)
        requests += burst
        arrival_ns += interval_ns
    return requests


def uniform(
    n: int,
    rng: random.Random,
    *,
    prompt_tokens: tuple[int, int],
    output_tokens: tuple[int, int],
    interval_ns: int,
    repeats: float = 0.0,
) -> list[RequestSpec]:
    """``n`` requests ``interval_ns`` apart; bounds are inclusive.

    The share ``repeats`` of them begins like an earlier one, up to a token that is drawn, or is
    the same prompt again. The others share nothing.

    Raises WorkloadError.
    """
    check_count("n", n)
    check_range("prompt_tokens", prompt_tokens)
    check_range("output_tokens", output_tokens)
    if interval_ns < 0:
        raise WorkloadError(f"interval_ns is {interval_ns}, must be an integer, 0 or more")
    requests: list[RequestSpec] = []
    for index in range(n):
        prompt: tuple[Segment, ...] = (Segment(index, rng.randint(*prompt_tokens)),)
        if repeats and requests and rng.random() < repeats:
            prompt = _beginning_like(rng.choice(requests), prompt[0], rng)
        requests.append(
            RequestSpec(
                request_id=f"req-{index}",
                arrival_ns=index * interval_ns,
                prompt=prompt,
                max_tokens=rng.randint(*output_tokens),
            )
        )
    return requests


def _beginning_like(earlier: RequestSpec, own: Segment, rng: random.Random) -> tuple[Segment, ...]:
    """A prompt as long as ``own`` that shares its first tokens with ``earlier``; one time in four
    the prompt of ``earlier``."""
    if rng.random() < 0.25:
        return earlier.prompt
    longest = min(earlier.prompt_tokens, own.n_tokens)
    shared = rng.randint(1, longest)
    if rng.random() < 0.5:  # where blocks begin and end, which are seldom shorter than this
        shared = min(max(shared // _EDGES * _EDGES + rng.randint(-1, 1), 1), longest)
    prompt = []
    for segment in earlier.prompt:
        if shared:
            taken = min(shared, segment.n_tokens)
            prompt.append(Segment(segment.content_id, taken))
            shared -= taken
    rest = own.n_tokens - sum(segment.n_tokens for segment in prompt)
    return (*prompt, Segment(own.content_id, rest)) if rest else tuple(prompt)


class _PromptMaker:
    """Makes prompts of the right lengths and keeps the shared share of their tokens on target."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self._rng = rng
        self._share = share
        self._positions = StratifiedPositions(rng)
        self._opening = (SYSTEM_PROMPT,) if share >= _MIN_SHARE_WITH_SYSTEM_PROMPT else ()
        self._open = _OpenConversations()
        self._next_content_id = SYSTEM_PROMPT.content_id + 1
        self._tokens = 0
        self._shared_tokens = 0

    def make(self) -> tuple[Segment, ...]:
        """The next prompt."""
        length = PROMPT_TOKENS.at(self._positions.draw())
        beginning = self._beginning(length)
        shared = _token_count(beginning)
        self._shared_tokens += shared
        self._tokens += length
        return (*beginning, self._new_text(length - shared))

    def open_conversations(self, burst: Sequence[RequestSpec]) -> None:
        """Let later requests continue those of ``burst``; nobody continues within a burst."""
        self._open.extend(burst)

    def _beginning(self, length: int) -> tuple[Segment, ...]:
        """The part of a prompt of ``length`` tokens that is not new.

        Continuing is a biased coin whose expectation is the target plus a part of what earlier
        prompts fell short of it, so the sharing stays irregular and its sum does not drift.
        """
        parent = self._open.nearest(length, self._rng)
        if parent is None:
            return self._opening
        shortfall = self._share * self._tokens - self._shared_tokens
        wanted = self._share * length + shortfall / _CATCH_UP_REQUESTS
        opening_tokens = _token_count(self._opening)
        gain = _token_count(parent) - opening_tokens
        return parent if self._rng.random() * gain < wanted - opening_tokens else self._opening

    def _new_text(self, n_tokens: int) -> Segment:
        content_id = self._next_content_id
        self._next_content_id += 1
        return Segment(content_id, n_tokens)


class _OpenConversations:
    """The latest prompts, by length, for a next turn to continue."""

    def __init__(self) -> None:
        self._by_age: deque[tuple[int, int]] = deque()
        self._by_length: list[tuple[int, int]] = []
        self._prompts: dict[int, tuple[Segment, ...]] = {}
        self._serial = 0

    def extend(self, burst: Sequence[RequestSpec]) -> None:
        for request in burst:
            entry = (request.prompt_tokens + request.max_tokens, self._serial)
            self._serial += 1
            self._prompts[entry[1]] = request.prompt
            self._by_age.append(entry)
            insort(self._by_length, entry)
        while len(self._by_age) > _OPEN_CONVERSATIONS:
            oldest = self._by_age.popleft()
            del self._by_length[bisect_left(self._by_length, oldest)]
            del self._prompts[oldest[1]]

    def nearest(self, length: int, rng: random.Random) -> tuple[Segment, ...] | None:
        """One of the longest prompts that, with their answers, are shorter than ``length``."""
        end = bisect_left(self._by_length, (length, 0))
        if end == 0:
            return None
        _, serial = self._by_length[rng.randrange(max(0, end - _NEAREST), end)]
        return self._prompts[serial]


def _token_count(prompt: tuple[Segment, ...]) -> int:
    return sum(segment.n_tokens for segment in prompt)
