"""What a scenario says about the router and its clients: delays, retries, impatience."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import msgspec

from sim.errors import UsageError

Phase = Literal["queued_at_p", "prefill", "handoff", "queued_at_d", "allocated", "decode"]
"""Where a request is, as its router can tell.

A colocated request goes through ``queued_at_p``, ``prefill`` and ``decode``.
"""
PHASES: tuple[Phase, ...] = get_args(Phase)
COLOCATED_PHASES: tuple[Phase, ...] = ("queued_at_p", "prefill", "decode")

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Hold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep ``request`` for some time between its prefill leg and its decode leg."""

    request: str
    seconds: Seconds


class Abort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The client of ``request`` goes away: at a time, or as soon as a phase is entered.

    ``at_s`` counts from the start of the workload. A client that is due to go before its request
    arrives goes at the arrival.
    """

    request: str
    at_s: Seconds | None = None
    on_phase: Phase | None = None

    def __post_init__(self) -> None:
        """Refuse an abort with no moment, or with two."""
        if (self.at_s is None) == (self.on_phase is None):
            problem = "neither is" if self.at_s is None else "both are"
            raise ValueError(
                f"the abort of {self.request!r} needs either at_s or on_phase, and {problem} given"
            )


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Send ``request`` again ``after_s`` after its first hand-off, unless it has ended by then.

    The earlier attempt is not cancelled: the first to succeed is the answer, and the others are
    aborted then. With ``same_transfer_id`` only the decode leg is repeated, with the same
    parameters, on the same consumer or (``other``) on the next one; otherwise a new transfer
    starts with a new prefill leg.
    """

    request: str
    after_s: Seconds
    same_transfer_id: bool = True
    consumer: Literal["same", "other"] = "same"


class RouterOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The router's own delay, and what it and its clients do to single requests."""

    hand_off_latency_us: Annotated[int, msgspec.Meta(ge=0)] = 200
    """From the end of a prefill leg to the sending of the decode leg."""
    holds: tuple[Hold, ...] = ()
    aborts: tuple[Abort, ...] = ()
    retries: tuple[Retry, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would be ignored, or added up unasked."""
        for request, count in Counter(hold.request for hold in self.holds).items():
            if count > 1:
                raise ValueError(
                    f"holds: {request!r} is held {count} times; a request is held once, between "
                    "its prefill and its decode leg: give the sum"
                )

    def require_possible(self, *, in_pairs: bool) -> None:
        """UsageError for a retry that cannot be where both legs of a request are sent at once."""
        for retry in self.retries:
            if in_pairs and retry.same_transfer_id and retry.consumer == "other":
                raise UsageError(
                    f"router.retries: the decode leg of {retry.request!r} cannot go to another "
                    "consumer with the same transfer id, because the producer was told where to "
                    "write before it began; set same_transfer_id: false"
                )

    def named_requests(self) -> list[tuple[tuple[str | int, ...], str]]:
        """The ids of the requests that something is to happen to, each with the keys to it."""
        entries: dict[str, Sequence[Hold | Abort | Retry]] = {
            "holds": self.holds,
            "aborts": self.aborts,
            "retries": self.retries,
        }
        return [
            ((key, number, "request"), entry.request)
            for key, some in entries.items()
            for number, entry in enumerate(some)
        ]
