"""What the socket types have in common: who gets the next message, whose is read next.

A pattern decides and never blocks. The socket (core.py) asks it for a route when the first part
of a message is sent, gives it the whole message when the last part is, and asks it for the next
message to read; "not now" (None) makes the socket wait.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import zmq

from sim.guest.facades.zmq.errors import zmq_error
from sim.guest.facades.zmq.pipe import Frames, Pipe

Route = list[Pipe]  # empty: the message is going nowhere


class Pattern:
    """A socket type. The base fair-queues what comes in, as all types do that receive."""

    can_send: ClassVar[bool] = True
    can_receive: ClassVar[bool] = True
    reports_drops: ClassVar[bool] = False  # whether a message without a route is worth telling

    def __init__(self) -> None:
        self.pipes: list[Pipe] = []
        self._readable: deque[Pipe] = deque()
        self._prefetched: list[bytes] | None = None
        self._taken_from: Pipe | None = None

    # ----------------------------------------------------------------- peers

    def attach(self, pipe: Pipe) -> bool:
        """A new peer; False refuses it."""
        self.pipes.append(pipe)
        return True

    def linked(self, pipe: Pipe) -> None:
        """The pipe has got a connection, or another one."""

    def detach(self, pipe: Pipe) -> None:
        """The peer has gone and was read to the end."""
        if pipe in self.pipes:
            self.pipes.remove(pipe)

    def discard(self, pipe: Pipe) -> None:
        """The peer has gone, and what it sent goes with it."""
        if pipe in self._readable:
            self._readable.remove(pipe)
        if pipe is self._taken_from:
            self._prefetched = None
        self.detach(pipe)

    def arrived(self, pipe: Pipe, frames: Frames) -> None:
        """A message has come over the connection of a pipe."""
        pipe.receive(frames)

    def readable(self, pipe: Pipe) -> None:
        """A pipe has something to read again."""
        self._readable.append(pipe)

    # --------------------------------------------------------------- sending

    def check_send(self) -> None:
        """Raise the error of sending in this state, if it is one."""
        if not self.can_send:
            raise zmq_error(zmq.ENOTSUP)

    def route(self, first: bytes) -> Route | None:
        """Where a message that begins with ``first`` goes; None when it has to wait."""
        raise NotImplementedError

    def deliver(self, route: Route, frames: list[bytes]) -> None:
        """Send the whole message along its route."""
        for pipe in route:
            if pipe.open:
                pipe.write(frames)

    def may_send(self) -> bool:
        """Whether poll() reports the socket writable."""
        return self.can_send and any(pipe.writable for pipe in self.pipes)

    # ------------------------------------------------------------- receiving

    def check_receive(self) -> None:
        """Raise the error of receiving in this state, if it is one."""
        if not self.can_receive:
            raise zmq_error(zmq.ENOTSUP)

    def receive(self) -> list[bytes] | None:
        """The next message, or None when there is none."""
        if self._prefetched is not None:
            frames, self._prefetched = self._prefetched, None
            return frames
        return self._next()

    def received(self) -> None:
        """The last part of a message has been read."""

    def may_receive(self) -> bool:
        """Whether poll() reports the socket readable."""
        if not self.can_receive:
            return False
        if self._prefetched is None:
            self._prefetched = self._next()
        return self._prefetched is not None

    def _anything_arrived(self) -> bool:
        """Whether there is something to read, be it meant for the user or not."""
        return bool(self._readable)

    def _next(self) -> list[bytes] | None:
        """The next message that is meant for the user."""
        item = self._take()
        return item[1] if item is not None else None

    def _take(self) -> tuple[Pipe, list[bytes]] | None:
        """Fair queueing: one message from each peer in turn."""
        if not self._readable:
            return None
        pipe = self._taken_from = self._readable.popleft()
        frames = pipe.read()
        if pipe.readable:
            self._readable.append(pipe)
        else:
            self._read_to_the_end(pipe)
        return pipe, frames

    def _read_to_the_end(self, pipe: Pipe) -> None:
        if not pipe.open:
            self.detach(pipe)


class LoadBalanced(Pattern):
    """Sends to its peers in turn, past those whose queue is full: DEALER, PUSH, REQ."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = 0

    def route(self, first: bytes) -> Route | None:
        for i in range(len(self.pipes)):
            index = (self._turn + i) % len(self.pipes)
            if self.pipes[index].writable:
                self._turn = index + 1
                return [self.pipes[index]]
        return None


class Dealer(LoadBalanced):
    """Both ways, no envelope."""


class Push(LoadBalanced):
    """Sends only."""

    can_receive = False


class Pull(Pattern):
    """Receives only."""

    can_send = False


class Pair(LoadBalanced):
    """One peer at a time; others are refused."""

    def attach(self, pipe: Pipe) -> bool:
        return not self.pipes and super().attach(pipe)
