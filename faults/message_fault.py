"""Faults of messages of the side channel: handshakes, notifications, heartbeats."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from faults.fault import Point
from faults.item_fault import ItemFault
from sim.network import MessageInFlight

Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class MessageFault(ItemFault, frozen=True):
    """Of the target's messages, only those that have ``port`` at one of their ends."""

    port: Port | None = None

    point: ClassVar[Point] = "network"
    items: ClassVar[tuple[type, ...]] = (MessageInFlight,)

    def concerns(self, item: Any) -> bool:
        if not isinstance(item, MessageInFlight) or item.kind != "message":
            return False
        return self.port in (None, item.source_port, item.target_port)
