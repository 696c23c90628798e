"""A producer's hold on the blocks of one request: two state tables, of a rank and of the scheduler.

The scheduler alone decides how long blocks are held. It never frees blocks by itself: it tells
the ranks to let go, each rank stops saying that it holds them and reports, and vLLM frees the
blocks when all ranks have reported. So a rank that says "held" is right at that moment, and no
clocks are compared.
"""

from __future__ import annotations

from enum import auto

from connector.core.tables import Move, Symbol, Table


class HoldState(Symbol):
    """What one rank knows of a hold."""

    EXPECTED = auto()
    """The request runs; its blocks will be handed over when it ends."""
    RELEASED_EARLY = auto()
    """All readers are done before this rank has heard that the request has ended."""
    HELD = auto()
    GONE = auto()


class HoldEvent(Symbol):
    """What a rank hears about a hold, from its scheduler or from readers."""

    OFFERED = auto()
    """The scheduler has handed the blocks over."""
    RELEASED = auto()
    """The last reader of this rank is done."""
    REVOKED = auto()
    """The scheduler does not hold them any longer."""
    DROPPED = auto()
    """The request ended without anything to hand over."""
    ASKED = auto()
    """A reader wants to know whether they are held."""
    RENEWED = auto()
    """A reader asks for more time."""


class HoldAction(Symbol):
    """What a rank does for a hold."""

    REPORT_SENT = auto()
    """Tell vLLM that this rank is done; once and never again."""
    SAY_HELD = auto()
    SAY_GONE = auto()
    PASS_ON = auto()
    """Let the scheduler know of the renewal; until it has taken it, nothing has changed."""


_S, _E, _A = HoldState, HoldEvent, HoldAction

RANK_HOLD: Table[HoldState, HoldEvent, HoldAction] = Table(
    "hold on a rank",
    {
        (_S.EXPECTED, _E.OFFERED): Move(_S.HELD),
        (_S.EXPECTED, _E.RELEASED): Move(_S.RELEASED_EARLY),
        (_S.EXPECTED, _E.DROPPED): Move(_S.GONE),
        (_S.EXPECTED, _E.ASKED): Move(_S.EXPECTED, (_A.SAY_HELD,)),
        (_S.EXPECTED, _E.RENEWED): Move(_S.EXPECTED, (_A.PASS_ON,)),
        (_S.RELEASED_EARLY, _E.OFFERED): Move(_S.GONE, (_A.REPORT_SENT,)),
        (_S.RELEASED_EARLY, _E.RELEASED): Move(_S.RELEASED_EARLY),
        (_S.RELEASED_EARLY, _E.DROPPED): Move(_S.GONE),
        (_S.RELEASED_EARLY, _E.ASKED): Move(_S.RELEASED_EARLY, (_A.SAY_GONE,)),
        (_S.RELEASED_EARLY, _E.RENEWED): Move(_S.RELEASED_EARLY),
        (_S.HELD, _E.RELEASED): Move(_S.GONE, (_A.REPORT_SENT,)),
        (_S.HELD, _E.REVOKED): Move(_S.GONE, (_A.REPORT_SENT,)),
        (_S.HELD, _E.ASKED): Move(_S.HELD, (_A.SAY_HELD,)),
        (_S.HELD, _E.RENEWED): Move(_S.HELD, (_A.PASS_ON,)),
        (_S.GONE, _E.RELEASED): Move(_S.GONE),
        (_S.GONE, _E.REVOKED): Move(_S.GONE),
        (_S.GONE, _E.ASKED): Move(_S.GONE, (_A.SAY_GONE,)),
        (_S.GONE, _E.RENEWED): Move(_S.GONE),
    },
    final=frozenset({_S.GONE}),
)


class LeaseState(Symbol):
    """What the scheduler knows of a hold."""

    HOLDING = auto()
    REVOKING = auto()
    FREED = auto()


class LeaseEvent(Symbol):
    """What the scheduler hears about a hold."""

    EXPIRED = auto()
    RENEWED = auto()
    """A rank has passed on that a reader asks for more time."""
    SENT = auto()
    """All ranks are done."""


class LeaseAction(Symbol):
    """What the scheduler does for a hold."""

    REVOKE = auto()
    EXTEND = auto()
    FREE = auto()
    """Let vLLM have the report of its workers, which makes it free the blocks."""


_LS, _LE, _LA = LeaseState, LeaseEvent, LeaseAction

LEASE: Table[LeaseState, LeaseEvent, LeaseAction] = Table(
    "lease",
    {
        (_LS.HOLDING, _LE.EXPIRED): Move(_LS.REVOKING, (_LA.REVOKE,)),
        (_LS.HOLDING, _LE.RENEWED): Move(_LS.HOLDING, (_LA.EXTEND,)),
        (_LS.HOLDING, _LE.SENT): Move(_LS.FREED, (_LA.FREE,)),
        (_LS.REVOKING, _LE.RENEWED): Move(_LS.REVOKING),
        (_LS.REVOKING, _LE.SENT): Move(_LS.FREED, (_LA.FREE,)),
        (_LS.FREED, _LE.RENEWED): Move(_LS.FREED),
        (_LS.FREED, _LE.SENT): Move(_LS.FREED),
    },
    final=frozenset({_LS.FREED}),
)
