"""A request with a remote prefill, as the consumer's scheduler sees it: a state table."""

from __future__ import annotations

from enum import auto

from connector.core.tables import Move, Symbol, Table


class RequestState(Symbol):
    """What has become of the producer's offer."""

    OFFERED = auto()
    """Nothing is allocated yet; vLLM may ask again and again."""
    LOADING = auto()
    ORPHANED = auto()
    """The request has ended; vLLM keeps its blocks until the load is reported."""
    SETTLED = auto()
    """Loaded, failed, or nothing was loaded: from now on the answer to vLLM is zero."""
    OVER = auto()


class RequestEvent(Symbol):
    """What vLLM's scheduler lets us know."""

    LOAD = auto()
    """Blocks are allocated for external tokens."""
    LOAD_IN_STEP = auto()
    """The same for a synchronous load, which nobody reports when it succeeds."""
    NO_LOAD = auto()
    """Blocks are allocated, and no token comes from outside."""
    REPORTED = auto()
    """All ranks have reported a load: of this connector, or of another one beside it."""
    ENDED = auto()


class RequestAction(Symbol):
    """What the consumer's scheduler has its ranks do."""

    START_LOAD = auto()
    RELEASE = auto()
    """Tell the producer that nothing will be read."""


_S, _E, _A = RequestState, RequestEvent, RequestAction

REQUEST: Table[RequestState, RequestEvent, RequestAction] = Table(
    "request",
    {
        (_S.OFFERED, _E.LOAD): Move(_S.LOADING, (_A.START_LOAD,)),
        (_S.OFFERED, _E.LOAD_IN_STEP): Move(_S.SETTLED, (_A.START_LOAD,)),
        (_S.OFFERED, _E.NO_LOAD): Move(_S.SETTLED, (_A.RELEASE,)),
        (_S.OFFERED, _E.ENDED): Move(_S.OVER, (_A.RELEASE,)),
        (_S.LOADING, _E.REPORTED): Move(_S.SETTLED),
        (_S.LOADING, _E.ENDED): Move(_S.ORPHANED),
        (_S.ORPHANED, _E.REPORTED): Move(_S.OVER),
        (_S.SETTLED, _E.NO_LOAD): Move(_S.SETTLED),
        (_S.SETTLED, _E.REPORTED): Move(_S.SETTLED),
        (_S.SETTLED, _E.ENDED): Move(_S.OVER),
    },
    final=frozenset({_S.OVER}),
)
