"""One peer as a socket sees it: a queue each way, with high-water marks.

A pipe of a connecting socket exists before there is a connection and outlives it: what waits in
it goes to whoever listens at the address next. A pipe of an accepting socket goes when its
connection does; what was received is still read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

Frames = Sequence[bytes]


class Link(Protocol):
    """What carries a pipe's messages: an endpoint of the network, or the other pipe."""

    @property
    def writable(self) -> bool:
        """Whether more can be sent now."""

    def send(self, frames: Frames, kind: str = "message") -> None:
        """Put a message on its way."""

    def acknowledge(self, frames: Frames) -> None:
        """A received message has been taken over."""

    def close(self) -> None:
        """Close this end; what was sent still arrives."""


class Owner(Protocol):
    """The socket that a pipe belongs to."""

    def pipe_arrived(self, pipe: Pipe, frames: Frames) -> None:
        """A message has come for the pipe."""

    def pipe_lost(self, pipe: Pipe) -> None:
        """The pipe's connection has gone for good."""

    def pipe_readable(self, pipe: Pipe) -> None:
        """The pipe had nothing to read, and now has."""

    def pipe_progressed(self, pipe: Pipe) -> None:
        """The pipe may be writable, or drained."""


class HighWaterMark:
    """Counts a queue as libzmq does: the writer hears of reads only now and then.

    A full queue becomes writable again when half of it has been read (``(mark + 1) // 2``
    messages), not with the first read. 0 is no limit.
    """

    def __init__(self, mark: int) -> None:
        self._mark = mark
        self._step = (mark + 1) // 2
        self._written = 0
        self._read = 0
        self._known_read = 0

    @property
    def full(self) -> bool:
        """Whether the writer has to wait."""
        return 0 < self._mark <= self._written - self._known_read

    def wrote(self) -> None:
        """One more message is in the queue."""
        self._written += 1

    def took(self) -> None:
        """One message has left the queue."""
        self._read += 1
        if self._step and self._read % self._step == 0:
            self._known_read = self._read


class Pipe:
    """The queues between a socket and one peer."""

    def __init__(self, owner: Owner, send_mark: int, receive_mark: int) -> None:
        self.owner = owner
        self.link: Link | None = None
        self.routing_id = b""
        self.open = True  # False: no more writing; goes when it has been read
        self.state: Any = None  # what the socket's pattern remembers about the peer
        self._outbound: deque[Frames] = deque()
        self._outbound_mark = HighWaterMark(send_mark)
        self._inbound: deque[list[bytes]] = deque()
        self._inbound_mark = HighWaterMark(receive_mark)
        self._unadmitted: deque[Frames] = deque()

    # --------------------------------------------------------------- writing

    @property
    def writable(self) -> bool:
        """Whether a message can be written without exceeding the high-water mark."""
        return self.open and not self._outbound_mark.full

    @property
    def drained(self) -> bool:
        """Whether everything written has gone out."""
        return not self._outbound

    def write(self, frames: Frames) -> None:
        """Queue a message; it leaves at once if the connection takes it."""
        self._outbound.append(frames)
        self._outbound_mark.wrote()
        self.pump()

    def send_control(self, frames: Frames, kind: str) -> None:
        """Send what the protocol itself says; it does not count as a message."""
        assert self.link is not None
        self.link.send(frames, kind)

    def pump(self) -> None:
        """Hand over to the connection what it takes now."""
        moved = False
        while self._outbound and self.link is not None and self.link.writable:
            frames = self._outbound.popleft()
            self._outbound_mark.took()
            self.link.send(frames)
            moved = True
        if moved:
            self.owner.pipe_progressed(self)

    # --------------------------------------------------------------- reading

    @property
    def readable(self) -> bool:
        """Whether a message can be read."""
        return bool(self._inbound)

    @property
    def has_room(self) -> bool:
        """Whether a received message would be taken over at once."""
        return not self._inbound_mark.full

    def receive(self, frames: Frames) -> None:
        """A message has arrived; it stays with the transport while the queue is full."""
        self._unadmitted.append(frames)
        self._admit()

    def read(self) -> list[bytes]:
        """Take the oldest message; the pipe must be readable."""
        frames = self._inbound.popleft()
        self._inbound_mark.took()
        self._admit()
        return frames

    def _admit(self) -> None:
        while self._unadmitted and self.has_room:
            frames = self._unadmitted.popleft()
            was_readable = self.readable
            self._inbound.append(list(frames))
            self._inbound_mark.wrote()
            if self.link is not None:
                self.link.acknowledge(frames)
            if not was_readable:
                self.owner.pipe_readable(self)

    # --------------------------------------------------------------- closing

    def shut(self) -> None:
        """No more writing, and what has not gone out yet is lost; reading goes on."""
        link, self.link = self.link, None
        self.abandon()
        if link is not None:
            link.close()

    def abandon(self) -> None:
        """The connection has gone, or the process has died; what was received can be read."""
        self.open = False
        self.link = None
        self._outbound.clear()
