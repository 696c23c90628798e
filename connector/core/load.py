"""One load on a consumer rank: from the scheduler's order to the report, as a state table.

The rule that everything here serves: bytes count only after the producer has said, after the last
read was complete, that it still held the blocks; and a block is given up only when no read can
land in it any more.
"""

from __future__ import annotations

from enum import StrEnum, auto

from connector.core.tables import Move, Symbol, Table


class LoadState(Symbol):
    """Where a load stands on one rank."""

    CONNECTING = auto()
    """The peer is being asked for its memory, or the device for the end of earlier work."""
    READING = auto()
    """All reads are posted; not all have completed."""
    CONFIRMING = auto()
    """All reads succeeded; the producer is asked whether it held the blocks until now, and, if the
    load is verified, for digests of what they hold."""
    REPAIRING = auto()
    """The path has failed. Once no read can land any more, all is read once more over a new one."""
    FENCED = auto()
    """Given up, but a read may still land."""
    LOADED = auto()
    FAILED = auto()


class LoadEvent(Symbol):
    """What can happen to a load."""

    CONNECTED = auto()
    """The peer is known, its caches are like ours, sessions are open."""
    REFUSED = auto()
    """It cannot be read from: no answer, another layout, a malformed payload."""
    SUCCEEDED = auto()
    """The last read completed, and all succeeded."""
    PATH_LOST = auto()
    """Reads failed or take too long, for the first time, and the producer can be asked later."""
    BROKEN = auto()
    """All reads are final, and at least one failed."""
    TIMED_OUT = auto()
    """The load's deadline has passed."""
    HELD = auto()
    """The producer held the blocks when it answered; of a verified load all digests are equal."""
    DOUBTED = auto()
    """The load is verified, and a digest differs, the blocks are gone, or the time is over."""
    GONE = auto()
    """It did not, or it is another incarnation."""
    UNCONFIRMED = auto()
    """The last read completed and the peer cannot be asked: an upstream peer."""
    FENCE_DOWN = auto()
    """No read of this load can land any more."""


class Cause(StrEnum):
    """Why a load failed, for metrics and the log."""

    BAD_OFFER = "bad-offer"
    """The transfer parameters cannot be used."""
    NO_ANSWER = "no-answer"
    """The peer did not answer the handshake, or no session with it was open, in time."""
    NO_SESSION = "no-session"
    """A session could not be opened, or our own memory not be registered."""
    MISMATCH = "mismatch"
    """The peer is not the one that made the offer, has other caches, or names other blocks."""
    READ_FAILED = "read-failed"
    READ_TIMED_OUT = "read-timed-out"
    NOT_CONFIRMED = "not-confirmed"
    """The peer did not say in time whether it had held the blocks."""
    NO_LONGER_HELD = "no-longer-held"
    WRONG_BYTES = "wrong-bytes"
    """What was read is not what the producer holds."""
    INTERNAL = "internal"
    """An error of the program."""


class LoadAction(Symbol):
    """What a rank does for a load."""

    POST_READS = auto()
    START_OVER = auto()
    """Connect anew, over a path that has carried none of the reads so far."""
    ASK = auto()
    RELEASE = auto()
    """Tell the producer's ranks that we are done with their blocks."""
    REPORT_LOADED = auto()
    REPORT_FAILED = auto()


_S, _E, _A = LoadState, LoadEvent, LoadAction
_LOADED: Move[LoadState, LoadAction] = Move(_S.LOADED, (_A.RELEASE, _A.REPORT_LOADED))
_FAILED: Move[LoadState, LoadAction] = Move(_S.FAILED, (_A.RELEASE, _A.REPORT_FAILED))

LOAD: Table[LoadState, LoadEvent, LoadAction] = Table(
    "load",
    {
        (_S.CONNECTING, _E.CONNECTED): Move(_S.READING, (_A.POST_READS,)),
        (_S.CONNECTING, _E.REFUSED): _FAILED,
        (_S.CONNECTING, _E.TIMED_OUT): _FAILED,
        (_S.READING, _E.SUCCEEDED): Move(_S.CONFIRMING, (_A.ASK,)),
        (_S.READING, _E.UNCONFIRMED): _LOADED,
        (_S.READING, _E.PATH_LOST): Move(_S.REPAIRING),
        (_S.READING, _E.BROKEN): Move(_S.FENCED),
        (_S.READING, _E.TIMED_OUT): Move(_S.FENCED),
        # Before, an earlier read could land over the new one, when its bytes are another prompt's.
        (_S.REPAIRING, _E.FENCE_DOWN): Move(_S.CONNECTING, (_A.START_OVER,)),
        (_S.REPAIRING, _E.TIMED_OUT): Move(_S.FENCED),
        (_S.CONFIRMING, _E.HELD): _LOADED,
        (_S.CONFIRMING, _E.GONE): _FAILED,
        (_S.CONFIRMING, _E.TIMED_OUT): _FAILED,
        # Its bytes may still be on their way, whatever the library says.
        (_S.CONFIRMING, _E.DOUBTED): Move(_S.FENCED),
        (_S.FENCED, _E.FENCE_DOWN): _FAILED,
        (_S.FENCED, _E.HELD): Move(_S.FENCED),
        (_S.FENCED, _E.GONE): Move(_S.FENCED),
        # An answer to a question that was asked twice.
        (_S.LOADED, _E.HELD): Move(_S.LOADED),
        (_S.LOADED, _E.GONE): Move(_S.LOADED),
        (_S.FAILED, _E.HELD): Move(_S.FAILED),
        (_S.FAILED, _E.GONE): Move(_S.FAILED),
    },
    final=frozenset({_S.LOADED, _S.FAILED}),
)
