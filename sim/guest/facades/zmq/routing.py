"""The socket types that address a peer or answer one: ROUTER, REP, REQ."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from sim.guest.facades.zmq.errors import zmq_error
from sim.guest.facades.zmq.patterns import LoadBalanced, Pattern, Route
from sim.guest.facades.zmq.pipe import Frames, Pipe

_DELIMITER = b""


class Router(Pattern):
    """Prefixes what it receives with the sender's routing id, and sends to the id it is given.

    A peer without a routing id of its own gets five bytes, the first of them zero. A second
    peer with an id in use is ignored for good, unless ROUTER_HANDOVER lets it take over.
    """

    reports_drops = True

    def __init__(self, option: Callable[[int], int]) -> None:
        super().__init__()
        self._option = option
        self._peers: dict[bytes, Pipe] = {}
        self._next_id = 1

    def linked(self, pipe: Pipe) -> None:
        if self._knows(pipe):  # again, after a reconnection
            return
        routing_id = pipe.routing_id
        if not routing_id:
            routing_id = b"\0" + self._next_id.to_bytes(4, "big")
            self._next_id += 1
        elif routing_id in self._peers:
            if not self._option(zmq.ROUTER_HANDOVER):
                return
            self._peers[routing_id].shut()
        pipe.state = routing_id
        self._peers[routing_id] = pipe

    def _knows(self, pipe: Pipe) -> bool:
        return self._peers.get(pipe.state) is pipe

    def arrived(self, pipe: Pipe, frames: Frames) -> None:
        if self._knows(pipe):
            super().arrived(pipe, frames)
        elif pipe.link is not None:
            pipe.link.acknowledge(frames)

    def detach(self, pipe: Pipe) -> None:
        super().detach(pipe)
        if self._knows(pipe):
            del self._peers[pipe.state]

    def route(self, first: bytes) -> Route | None:
        pipe = self._peers.get(first)
        if pipe is not None and pipe.writable:
            return [pipe]
        if not self._option(zmq.ROUTER_MANDATORY):
            return []
        if pipe is not None and pipe.open:
            return None
        raise zmq_error(zmq.EHOSTUNREACH)

    def deliver(self, route: Route, frames: list[bytes]) -> None:
        if len(frames) > 1:  # an id alone is no message
            super().deliver(route, frames[1:])

    def may_send(self) -> bool:
        return not self._option(zmq.ROUTER_MANDATORY) or super().may_send()

    def _next(self) -> list[bytes] | None:
        item = self._take()
        if item is None:
            return None
        pipe, frames = item
        return [pipe.state, *frames]


class Rep(Pattern):
    """Answers, in strict alternation, whoever asked. Malformed requests are skipped."""

    reports_drops = True

    def __init__(self) -> None:
        super().__init__()
        self._asker: Pipe | None = None
        self._envelope: list[bytes] = []
        self._must_answer = False

    def check_receive(self) -> None:
        if self._must_answer:
            raise zmq_error(zmq.EFSM)

    def check_send(self) -> None:
        if not self._must_answer:
            raise zmq_error(zmq.EFSM)

    def may_receive(self) -> bool:
        return not self._must_answer and self._anything_arrived()

    def may_send(self) -> bool:
        return self._must_answer

    def _next(self) -> list[bytes] | None:
        while (item := self._take()) is not None:
            self._asker, frames = item
            if _DELIMITER in frames[:-1]:
                body = frames.index(_DELIMITER) + 1
                self._envelope = frames[:body]
                return frames[body:]
        return None

    def received(self) -> None:
        self._must_answer = True

    def route(self, first: bytes) -> Route | None:
        assert self._asker is not None
        return [self._asker] if self._asker.writable else []

    def deliver(self, route: Route, frames: list[bytes]) -> None:
        self._must_answer = False
        super().deliver(route, [*self._envelope, *frames])


class Req(LoadBalanced):
    """Asks and waits for the answer of the peer it asked, in strict alternation."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: Pipe | None = None
        self._awaits_answer = False

    def check_send(self) -> None:
        if self._awaits_answer:
            raise zmq_error(zmq.EFSM)

    def check_receive(self) -> None:
        if not self._awaits_answer:
            raise zmq_error(zmq.EFSM)

    def may_send(self) -> bool:
        return not self._awaits_answer and super().may_send()

    def may_receive(self) -> bool:
        return self._awaits_answer and self._anything_arrived()

    def deliver(self, route: Route, frames: list[bytes]) -> None:
        while self._take() is not None:
            pass  # answers to nobody, from before the question
        (self._asked,) = route
        self._awaits_answer = True
        super().deliver(route, [_DELIMITER, *frames])

    def _next(self) -> list[bytes] | None:
        while (item := self._take()) is not None:
            pipe, frames = item
            if pipe is self._asked and len(frames) > 1 and frames[0] == _DELIMITER:
                return frames[1:]
        return None

    def received(self) -> None:
        self._awaits_answer = False
