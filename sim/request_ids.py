"""Names of requests: the client's, and those of the legs that the router makes of it.

A logical request becomes one request on a producer and one on a consumer, or a single one on a
colocated engine, and more of them when the router tries again. Where both legs are sent at once,
the id that an engine gets also carries the addresses of both engines, as vLLM's routers for
MoRIIO make it. Where a client asks for several samples, vLLM's front end makes a request of each,
and puts a number in front of the id. Everything that is told to people leaves all of that out.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

LegKind = Literal["p", "d", "c"]
"""On a producer, on a consumer, colocated."""

_LEG = re.compile(r"(?P<logical>.+)-(?P<kind>[pdc])\d+")
_ADDRESSES = "___prefill_addr_"
_SAMPLE = re.compile(r"\d+_n-")
_UNIQUE = re.compile(r"_[0-9a-f]{32}-")


def leg_id(logical: str, kind: LegKind, attempt: int) -> str:
    """The id under which an engine knows attempt number ``attempt`` of a logical request."""
    return f"{logical}-{kind}{attempt}"


def addressed_id(leg: str, producer: str, consumer: str) -> str:
    """The id of ``leg`` with the ZMQ addresses of both engines in front of it.

    The form is the one that MoRIIO looks for; the 32 digits, chance in a router, are a hash here.
    """
    unique = hashlib.blake2b(leg.encode(), digest_size=16).hexdigest()
    return f"{_ADDRESSES}{producer}___decode_addr_{consumer}_{unique}-{leg}"


def sample_id(request_id: str, index: int) -> str:
    """The id of one of several samples, in the form of vLLM's `ParentRequest`; what it puts the
    number in front of never begins with a number, or else leaves no doubt by the ``n-``."""
    return f"{index}_n-{request_id}"


def leg_of(request_id: str) -> str:
    """An engine's request id without addresses and the number of a sample."""
    if sample := _SAMPLE.match(request_id):
        request_id = request_id[sample.end() :]
    if not request_id.startswith(_ADDRESSES):
        return request_id
    return _UNIQUE.split(request_id, maxsplit=1)[-1]


def logical_id(leg: str) -> str:
    """The logical request that ``leg`` is part of; an id that is no leg's stands for itself."""
    leg = leg_of(leg)
    match = _LEG.fullmatch(leg)
    return match["logical"] if match else leg


def leg_kind(leg: str) -> str | None:
    """Where ``leg`` runs, a LegKind, or None if the id is no leg's."""
    match = _LEG.fullmatch(leg_of(leg))
    return match["kind"] if match else None
