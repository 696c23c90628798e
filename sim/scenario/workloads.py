"""The four ways in which a scenario says what requests there are."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from sim.router.options import Seconds
from sim.units import MS, seconds_to_ns
from sim.workload import RequestSpec, Segment, generate, load_trace, scale, uniform
from sim.workload.generator import MAX_PREFIX_SHARE, MOONCAKE_PREFIX_SHARE
from sim.workload.shape import MEAN_RATE_RPS

Tokens = Annotated[int, msgspec.Meta(ge=1)]
MOST_REQUESTS = 1_000_000
Requests = Annotated[int, msgspec.Meta(ge=1, le=MOST_REQUESTS)]
Factor = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=MAX_PREFIX_SHARE)]
TokenRange = tuple[Tokens, Tokens]


class TraceWorkload(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="trace"
):
    """The first requests of a trace file (Mooncake JSON lines or Azure CSV)."""

    path: str
    """Made absolute, because an artifact lies elsewhere than where its run was started."""
    requests: Requests | None = None
    """All of them when not given."""
    length_scale: Factor = 1.0
    time_scale: Factor = 1.0
    max_prompt_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None

    def __post_init__(self) -> None:
        """Take the path from the current directory."""
        msgspec.structs.force_setattr(self, "path", str(Path(self.path).absolute()))

    def make(self, rng: random.Random) -> list[RequestSpec]:
        """The requests; TraceError when the file cannot be read."""
        return scale(
            load_trace(self.path, requests=self.requests),
            length_scale=self.length_scale,
            time_scale=self.time_scale,
            max_prompt_tokens=self.max_prompt_tokens,
            max_output_tokens=self.max_output_tokens,
        )


class GeneratedWorkload(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="generated"
):
    """Requests with the shape of the Mooncake conversation trace, drawn from the seed."""

    requests: Requests
    rate_rps: Factor = MEAN_RATE_RPS
    shared_prefix_share: Share = MOONCAKE_PREFIX_SHARE
    length_scale: Factor = 1.0
    max_prompt_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None

    def make(self, rng: random.Random) -> list[RequestSpec]:
        """The requests; they depend on the state of ``rng``."""
        requests = generate(
            self.requests,
            rng,
            rate_rps=self.rate_rps,
            shared_prefix_share=self.shared_prefix_share,
        )
        return scale(
            requests,
            length_scale=self.length_scale,
            max_prompt_tokens=self.max_prompt_tokens,
            max_output_tokens=self.max_output_tokens,
        )


class UniformWorkload(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="uniform"
):
    """Requests at equal intervals; bounds are inclusive."""

    requests: Requests
    prompt_tokens: TokenRange
    output_tokens: TokenRange
    interval_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 100.0
    repeats: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the requests that begin like an earlier one."""

    def __post_init__(self) -> None:
        """Refuse empty ranges."""
        for name in ("prompt_tokens", "output_tokens"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} is [{low}, {high}], must be [low, high], low <= high")

    def make(self, rng: random.Random) -> list[RequestSpec]:
        """The requests; lengths depend on the state of ``rng``."""
        return uniform(
            self.requests,
            rng,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            interval_ns=round(self.interval_ms * MS),
            repeats=self.repeats,
        )


EPILOGUE = "epilogue"  # begins the names of those that have to succeed at the end


class InlineRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request; its prompt is a list of segments [content id, number of tokens]."""

    request_id: Annotated[str, msgspec.Meta(min_length=1)]
    prompt: Annotated[tuple[Segment, ...], msgspec.Meta(min_length=1)]
    max_tokens: Tokens
    arrival_s: Seconds = 0.0

    def __post_init__(self) -> None:
        """Refuse segments without tokens."""
        for content_id, n_tokens in self.prompt:
            if n_tokens < 1:
                raise ValueError(
                    f"prompt holds [{content_id}, {n_tokens}]; a segment is [content id, number "
                    "of tokens], with at least 1 token"
                )
        if self.request_id.startswith(EPILOGUE):
            raise ValueError(
                f"request_id {self.request_id!r} begins with {EPILOGUE!r}, as the names of the "
                "requests at the end of every run do; choose another one"
            )

    def spec(self) -> RequestSpec:
        """The request as workloads know it."""
        return RequestSpec(
            self.request_id, seconds_to_ns(self.arrival_s), self.prompt, self.max_tokens
        )


class InlineWorkload(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="inline"
):
    """Requests written out one by one."""

    requests: Annotated[tuple[InlineRequest, ...], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Refuse two requests of one name."""
        for name, count in Counter(request.request_id for request in self.requests).items():
            if count > 1:
                raise ValueError(f"request_id {name!r} is used {count} times")

    def make(self, rng: random.Random) -> list[RequestSpec]:
        """The requests as they are written."""
        return [request.spec() for request in self.requests]


Workload: TypeAlias = TraceWorkload | GeneratedWorkload | UniformWorkload | InlineWorkload
