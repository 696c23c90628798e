"""What the router keeps of a request while it lasts, and what remains of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.request_ids import LegKind, sample_id
from sim.router.options import Phase
from sim.router.pairing import Pairing
from sim.router.surroundings import FrontEnd
from sim.workload import RequestSpec


@dataclass(eq=False)
class Leg:
    """One request on one engine, from its sending to its last output."""

    id: str
    kind: LegKind
    engine: FrontEnd
    request: Ongoing
    pairing: Pairing | None = None
    """Of a leg that was sent together with its counterpart."""
    sample: int | None = None
    """Its number among several samples of a prompt."""
    has_blocks: bool = False
    tokens: list[int] = field(default_factory=list)
    remote_cached_tokens: int = 0

    @property
    def request_id(self) -> str:
        """The id under which the engine knows it."""
        name = self.id if self.pairing is None else self.pairing.request_id(self.id)
        return name if self.sample is None else sample_id(name, self.sample)

    def is_counterpart_of(self, other: Leg) -> bool:
        """Whether both were sent together, as prefill and decode of one attempt."""
        is_pair = self.pairing is not None and self.pairing is other.pairing
        return is_pair and self.kind != other.kind


@dataclass(frozen=True)
class HandOff:
    """What a consumer has to be told: the parameters, or None when it must prefill itself.

    Rules judge it when the prefill leg has ended, or with a pairing when it was sent. Honours
    Deliver, Delay, Drop (the client is told that the request failed, and no consumer is told
    anything) and Corrupt, whose ``change`` maps the parameters to others.
    """

    request_id: str
    params: dict[str, Any] | None
    producer: FrontEnd
    pairing: Pairing | None = None
    """When the producer was told of the consumer before it began."""


@dataclass(frozen=True)
class FirstLeg:
    """The first leg of a request is about to be sent.

    Honours Deliver and Corrupt, whose ``change`` maps the stop tokens of the request's client,
    none so far, to those that all its legs get.
    """

    request_id: str
    producer: FrontEnd
    """Or a colocated engine."""


@dataclass(frozen=True)
class Route:
    """The engines of a request that does not go where it is their turn; they have to be alive."""

    producer: FrontEnd | None
    """None where the consumer is a colocated engine."""
    consumer: FrontEnd


@dataclass(eq=False)
class Ongoing:
    """A request whose client still waits."""

    spec: RequestSpec
    arrival_ns: int
    route: Route | None = None
    phase: Phase | None = None
    legs: list[Leg] = field(default_factory=list)
    """Those that have not ended."""
    attempts: dict[LegKind, int] = field(default_factory=dict)
    """Legs sent so far, by kind."""
    stop_tokens: tuple[int, ...] = ()
    """Token ids that end the answer, besides its length."""
    is_told_early: bool = False
    """Whether a consumer got the request before its producer had finished."""
    samples: int = 1
    """How many the client wants of the one prompt."""
    sample_gap_ns: int = 0
    """Between the decode legs of two samples."""
    missing: int = 1
    """Samples that have not ended."""
    scheduled: int = 0
    """Hand-offs and retries that are yet to come."""
    hand_off: HandOff | None = None
    """The latest one; a retry with the same transfer id repeats it."""
    producer: FrontEnd | None = None
    consumer: FrontEnd | None = None
    """The latest ones that got a leg."""
    retries_scheduled: bool = False
    failed: dict[Pairing, str] = field(default_factory=dict)
    """Pairs of which one leg failed, and how."""
    first_token_ns: int | None = None
    ended: bool = False

    @property
    def id(self) -> str:
        """The logical request id."""
        return self.spec.request_id

    @property
    def is_answered_by_failure(self) -> bool:
        """Whether a decode leg that failed is the client's answer, whatever else is under way."""
        others = any(leg.kind != "p" for leg in self.legs)
        return self.samples > 1 or (self.is_told_early and not others)

    def transfer_id(self, attempt: int) -> str:
        """That both legs of an attempt share."""
        return f"tx-{self.id}-{attempt}"

    def result(self, outcome: str, leg: Leg | None, end_ns: int) -> Result:
        """The end of the request, with what the client got from ``leg``."""
        served = leg if leg is not None and leg.kind != "p" else None
        return Result(
            outcome=outcome,
            tokens=tuple(served.tokens) if served is not None else (),
            arrival_ns=self.arrival_ns,
            first_token_ns=self.first_token_ns,
            end_ns=end_ns,
            prefill_engine=self.producer.name if self.producer is not None else None,
            decode_engine=served.engine.name if served is not None else None,
            remote_cached_tokens=served.remote_cached_tokens if served is not None else 0,
        )


@dataclass(frozen=True)
class Result:
    """How a request ended for its client.

    ``outcome`` is a finish reason of vLLM ("length", "stop", "error", "abort") or "engine-died".
    ``remote_cached_tokens`` is how many prompt tokens the decoding engine got from its connector.
    """

    outcome: str
    tokens: tuple[int, ...]
    arrival_ns: int
    first_token_ns: int | None
    end_ns: int
    prefill_engine: str | None
    decode_engine: str | None
    remote_cached_tokens: int


def token_digest(tokens: Sequence[int]) -> str:
    """16 hexadecimal digits that stand for a token list in the event log."""
    data = np.asarray(tokens, dtype=np.int64).tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()
