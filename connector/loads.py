"""Where one load of a consumer rank stands."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from connector.batch import Batch
from connector.call import Call
from connector.core.load import LOAD, Cause, LoadState
from connector.core.verification import Digest, Share
from connector.endpoint import Endpoint
from connector.metadata import LoadOrder
from connector.peer import Peer

IsReady = Callable[[], bool]
"""Whether what was queued on the device before a load's order is done."""

FIRST_BACKOFF_S = 0.001


@dataclass
class Asked:
    """The question that a load waits for the answer to.

    Args:
        number: of the question.
        share: that the peer computes digests of, if it is to.
        digests: ours of the same, once they are computed.
        call: that it was last asked on.
        asked_at: when it was first asked on that, monotonic, in seconds.
        calls: how many it was asked on so far.
    """

    number: int
    share: Share
    digests: Future[tuple[Digest, ...]] | None
    call: Call | None = None
    asked_at: float = 0.0
    calls: int = 0


@dataclass
class Load:
    """Where one load stands.

    ``is_verified`` is by the peer's word from the handshake, which it may have to repeat for others
    before this load is confirmed; ``to_verify`` what it has still to be asked about;
    ``first_reason`` why the first reads were given up, if they are repeated; ``settles_at`` when a
    library that tells of success too early has written what it told of.
    """

    order: LoadOrder
    is_ready: IsReady
    started: float
    deadline: float
    state: LoadState = LoadState.CONNECTING
    peer: Peer | None = None
    endpoint: Endpoint | None = None
    batches: list[Batch] = field(default_factory=list)
    statuses: list[Any] = field(default_factory=list)
    backoff_s: float = FIRST_BACKOFF_S
    next_at: float = 0.0
    fence_until: float = 0.0
    settles_at: float = 0.0
    is_verified: bool = False
    to_verify: list[Share] = field(default_factory=list)
    asked: Asked | None = None
    cause: Cause = Cause.INTERNAL
    reason: str = ""
    first_reason: str = ""
    is_reported: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in LOAD.final

    @property
    def is_reading(self) -> bool:
        """Whether its reads are still hoped for."""
        return self.state is LoadState.READING

    def start_over(self) -> None:
        """Read all once more, from the handshake on; nothing has been asked yet."""
        self.first_reason = self.reason
        self.endpoint = None
        self.batches, self.statuses = [], []
        self.backoff_s, self.next_at, self.settles_at = FIRST_BACKOFF_S, 0.0, 0.0
