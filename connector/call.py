"""One connection of a consumer rank to a producer rank: a hello, its welcome, and what follows."""

from __future__ import annotations

from typing import Any

import zmq

from connector import wire


class Call:
    """Connected once and never again. So all that is said reaches the process that sends the
    welcome, or nobody: at the same address another connector may listen by then, which a question
    of ours can kill.

    Args:
        context: for the socket.
        path: of the producer rank.
        now: monotonic, in seconds, when the hello is said.

    Raises:
        zmq.ZMQError: there is no such address.
    """

    def __init__(self, context: zmq.Context[Any], path: str, now: float) -> None:
        self.began = self.heard_at = now
        """When the hello was said, and when something came last."""
        self.incarnation: str | None = None
        """That the welcome told."""
        self.is_doubted = False
        """Whether what was said has been without any answer for too long."""
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self._frames: list[bytes] = []
        try:
            self.socket.setsockopt(zmq.LINGER, 0)
            self.socket.setsockopt(zmq.RECONNECT_IVL, -1)
            self.socket.connect(path)
        except zmq.ZMQError:
            self.socket.close()
            raise
        self.say(wire.GET_META)  # to a peer that hangs up at once as to one that is silent

    def say(self, message: bytes) -> bool:
        """Whether it is on its way; if not, the connection has gone, or takes no more."""
        try:
            self.socket.send(message, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> None:
        """Take the frames of the welcome that have arrived."""
        while len(self._frames) < 2:
            frame = self._next()
            if frame is None:
                return
            self._frames.append(frame)

    def read_welcome(self) -> wire.Welcome | None:
        """None if it is not there yet.

        Raises:
            MalformedPayload: something else is.
        """
        self.receive()
        if len(self._frames) < 2:
            return None
        welcome = wire.decode_welcome(self._frames[0], self._frames[1])
        self.incarnation = welcome.incarnation
        return welcome

    def next_answer(self, now: float) -> wire.Answer | None:
        """To a question; None if there is no other.

        Raises:
            ConnectorError: something else has arrived.
        """
        frame = self._next()
        if frame is None:
            return None
        self.heard_at, self.is_doubted = now, False
        return wire.decode_answer(frame)

    def _next(self) -> bytes | None:
        try:
            return self.socket.recv_multipart(zmq.NOBLOCK)[-1]
        except zmq.Again:
            return None

    def close(self) -> None:
        self.socket.close()
