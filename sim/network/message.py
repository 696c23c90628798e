"""What travels, as the rules that judge it and the event log see it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sim.kernel import Node

Frames = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class MessageInFlight:
    """A message that is about to leave its sender; network rules judge this.

    One of the ports is the listener's, the other belongs to the side that connected, so a
    request and its reply differ in which of them it is. ``kind`` is "message" for what guest
    code sent; the protocol on top may have kinds of its own, such as "subscription". ``source``
    and ``target`` are the owners of the processes at the ends.
    """

    kind: str
    source_node: Node
    source_port: int
    target_node: Node
    target_port: int
    frames: tuple[bytes, ...]
    time_ns: int
    source: str
    target: str


def size_of(frames: Frames) -> int:
    """Payload bytes; headers of the transport are not counted."""
    return sum(map(len, frames))


def digest_of(frames: Frames) -> str:
    """Eight hexadecimal digits by which a message is recognised in the event log."""
    digest = hashlib.blake2b(digest_size=4)
    for frame in frames:
        digest.update(len(frame).to_bytes(8, "big"))
        digest.update(frame)
    return digest.hexdigest()
