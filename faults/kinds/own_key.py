"""What a connector adds to MoRIIO's parameters and messages, and somebody between takes away."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from faults.fault import Point
from faults.item_fault import ItemFault
from faults.message_fault import MessageFault
from faults.scene import Scene
from sim.network import MessageInFlight
from sim.router.ongoing import HandOff
from sim.verdict import Corrupt

How = Literal["stripped", "renamed"]
Key = Annotated[str, msgspec.Meta(min_length=1)]


class KeyStripped(ItemFault, frozen=True, tag="key-stripped"):
    """The router passes transfer parameters on without the connector's own ``key``, or renames it.

    As a router does that copies the keys it knows, or one that gives them the names it likes.
    """

    key: Key = "hybrid"
    how: How = "stripped"

    point: ClassVar[Point] = "router"
    items: ClassVar[tuple[type, ...]] = (HandOff,)
    takes: ClassVar[tuple[str, ...]] = ("node", "request")
    needs_fail_closed: ClassVar[bool] = True

    def concerns(self, item: Any) -> bool:
        return isinstance(item, HandOff) and self.key in (item.params or {})

    def verdict(self, item: Any, scene: Scene) -> Corrupt:
        return Corrupt(lambda params: _without(params, self.key, self.how))


class MessageKeyStripped(MessageFault, frozen=True, tag="message-key-stripped"):
    """A message between engines arrives without the connector's own ``key``, or with it renamed.

    As through a proxy that knows MoRIIO's fields alone. Messages without the key are not concerned.
    """

    key: Key = "hybrid"
    how: How = "stripped"

    needs_fail_closed: ClassVar[bool] = True

    def concerns(self, item: Any) -> bool:
        return (
            isinstance(item, MessageInFlight)
            and super().concerns(item)
            and any(self.key in _mapping(frame) for frame in item.frames)
        )

    def verdict(self, item: Any, scene: Scene) -> Corrupt:
        return Corrupt(lambda frames: [self._changed(frame) for frame in frames])

    def _changed(self, frame: bytes) -> bytes:
        fields = _mapping(frame)
        if self.key not in fields:
            return frame
        return msgspec.msgpack.encode(_without(fields, self.key, self.how))


def _without(fields: dict[str, Any], key: str, how: How) -> dict[str, Any]:
    value = fields.pop(key)
    return fields if how == "stripped" else {**fields, f"x-{key}": value}


def _mapping(frame: bytes) -> dict[str, Any]:
    """The fields of a frame that holds some; else none."""
    try:
        fields = msgspec.msgpack.decode(frame)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
