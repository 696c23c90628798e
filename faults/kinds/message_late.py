"""Messages that come late, or twice."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from faults.message_fault import MessageFault
from faults.scene import Scene
from sim.units import MS
from sim.verdict import Delay, Duplicate

Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class MessageDelayed(MessageFault, frozen=True, tag="message-delayed"):
    """A message comes ``by_ms`` late, and so does what follows on its connection.

    Messages of other connections overtake it; within a connection order is kept, as TCP keeps it.
    """

    by_ms: Milliseconds = 500.0

    def verdict(self, item: Any, scene: Scene) -> Delay:
        return Delay(round(self.by_ms * MS))


class MessageDuplicated(MessageFault, frozen=True, tag="message-duplicated"):
    """A message comes again ``after_ms``, as from a sender that tries twice."""

    after_ms: Milliseconds = 5.0

    def verdict(self, item: Any, scene: Scene) -> Duplicate:
        return Duplicate(round(self.after_ms * MS))
