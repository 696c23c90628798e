"""Shrinking (or stretching) a workload without losing what its prompts share.

Every segment is scaled by itself, so equal segments stay equal and shared prefixes stay shared;
a cap cuts the end of a prompt, never its beginning. The sum of rounded segments may differ from
the rounded sum. Arrival times are scaled apart from lengths.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sim.workload.checks import check_count, check_factor
from sim.workload.request import RequestSpec, Segment


def scale(
    requests: Iterable[RequestSpec],
    *,
    length_scale: float = 1.0,
    time_scale: float = 1.0,
    max_prompt_tokens: int | None = None,
    max_output_tokens: int | None = None,
) -> list[RequestSpec]:
    """The workload with lengths and arrival times multiplied, then capped.

    ``time_scale`` 0.1 makes requests arrive ten times faster. No segment and no output becomes
    shorter than one token. Caps are in tokens after scaling; None means uncapped. Raises
    WorkloadError for factors that are not above 0 and caps below 1.
    """
    check_factor("length_scale", length_scale)
    check_factor("time_scale", time_scale)
    for name, cap in (
        ("max_prompt_tokens", max_prompt_tokens),
        ("max_output_tokens", max_output_tokens),
    ):
        if cap is not None:
            check_count(name, cap)
    return [
        msgspec.structs.replace(
            request,
            arrival_ns=round(request.arrival_ns * time_scale),
            prompt=_capped(_scaled(request.prompt, length_scale), max_prompt_tokens),
            max_tokens=_at_most(_scaled_count(request.max_tokens, length_scale), max_output_tokens),
        )
        for request in requests
    ]


def _scaled(prompt: tuple[Segment, ...], factor: float) -> tuple[Segment, ...]:
    return tuple(
        Segment(content_id, _scaled_count(n_tokens, factor)) for content_id, n_tokens in prompt
    )


def _scaled_count(count: int, factor: float) -> int:
    return max(1, round(count * factor))


def _capped(prompt: tuple[Segment, ...], cap: int | None) -> tuple[Segment, ...]:
    if cap is None:
        return prompt
    kept: list[Segment] = []
    room = cap
    for content_id, n_tokens in prompt:
        if room == 0:
            break
        kept.append(Segment(content_id, min(n_tokens, room)))
        room -= kept[-1].n_tokens
    return tuple(kept)


def _at_most(count: int, cap: int | None) -> int:
    return count if cap is None else min(count, cap)
