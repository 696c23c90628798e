"""Messages that disappear."""

from __future__ import annotations

from typing import Any

from faults.message_fault import MessageFault
from faults.scene import Scene
from sim.verdict import Drop


class MessageDropped(MessageFault, frozen=True, tag="message-dropped"):
    """A message between engines disappears, and nobody is told."""

    def verdict(self, item: Any, scene: Scene) -> Drop:
        return Drop()
