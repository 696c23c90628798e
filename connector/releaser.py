"""Keeps producers' holds for decode legs on this consumer rank, and releases each with its last.

Used by the loader's thread alone.
"""

from __future__ import annotations

import time

from connector.core.legs import LegCount
from connector.metadata import KeepOrder, ReleaseOrder, Share
from connector.release_sender import ReleaseSender
from connector.renewer import Renewer


class Releaser:
    """Renews a hold while some leg waits or reads, and then releases it.

    Args:
        sender: of releases.
        renewer: of leases.
        legs: that share holds.
    """

    def __init__(self, sender: ReleaseSender, renewer: Renewer, legs: LegCount[Share]) -> None:
        self._sender = sender
        self._renewer = renewer
        self._legs = legs

    def keep(self, order: KeepOrder, now: float) -> None:
        """A leg may read from a hold."""
        self._legs.join(order.share, order.request_id, now, is_sample=order.is_sample)
        self._renewer.keep(order, now)

    def release(self, order: ReleaseOrder) -> None:
        """A leg is done; no other one loses the hold by that."""
        now = time.monotonic()
        if self._legs.leave(order.share, order.request_id, now):
            self._renewer.forget(order.share.address, order.share.hold)
            self.go_on(now)

    def go_on(self, now: float) -> None:
        """Release what is due."""
        for share in self._legs.due(now):
            self._sender.send(share)

    def seconds_to_next(self, now: float) -> float | None:
        """Until something is due; None if nothing ever will be."""
        due = self._legs.next_due()
        return None if due is None else max(due - now, 0.0)

    def close(self) -> None:
        self._sender.close()
