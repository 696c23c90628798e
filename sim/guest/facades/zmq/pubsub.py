"""PUB and SUB: subscriptions travel to the publisher, which filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sim.guest.facades.zmq.patterns import Pattern, Route
from sim.guest.facades.zmq.pipe import Frames, Pipe

_SUBSCRIBE, _UNSUBSCRIBE = b"\1", b"\0"
_KIND = "subscription"


class Pub(Pattern):
    """Sends to all peers that have subscribed; never waits for one whose queue is full."""

    can_receive = False

    def __init__(self, on_overflow: Callable[[Frames], None]) -> None:
        super().__init__()
        self._on_overflow = on_overflow

    def attach(self, pipe: Pipe) -> bool:
        pipe.state = {}
        return super().attach(pipe)

    def arrived(self, pipe: Pipe, frames: Frames) -> None:
        if pipe.link is not None:
            pipe.link.acknowledge(frames)
        command, topic = frames[0][:1], frames[0][1:]
        if command == _SUBSCRIBE:
            pipe.state[topic] = None
        elif command == _UNSUBSCRIBE:
            pipe.state.pop(topic, None)

    def route(self, first: bytes) -> Route | None:
        return [pipe for pipe in self.pipes if any(map(first.startswith, pipe.state))]

    def deliver(self, route: Route, frames: list[bytes]) -> None:
        for pipe in route:
            if pipe.writable:
                pipe.write(frames)
            else:
                self._on_overflow(frames)

    def may_send(self) -> bool:
        return True


class Sub(Pattern):
    """Receives what it has subscribed to."""

    can_send = False

    def __init__(self) -> None:
        super().__init__()
        self._topics: Counter[bytes] = Counter()

    def linked(self, pipe: Pipe) -> None:
        for topic in self._topics:
            pipe.send_control([_SUBSCRIBE + topic], _KIND)

    def subscribe(self, topic: bytes) -> None:
        """Ask for everything that begins with ``topic``; may be asked for several times."""
        self._topics[topic] += 1
        if self._topics[topic] == 1:
            self._tell([_SUBSCRIBE + topic])

    def unsubscribe(self, topic: bytes) -> None:
        """Take one ``subscribe`` back."""
        if topic not in self._topics:
            return
        self._topics[topic] -= 1
        if self._topics[topic] == 0:
            del self._topics[topic]
            self._tell([_UNSUBSCRIBE + topic])

    def _tell(self, command: Frames) -> None:
        for pipe in self.pipes:
            if pipe.link is not None:
                pipe.send_control(command, _KIND)

    def _next(self) -> list[bytes] | None:
        while (item := self._take()) is not None:
            if any(map(item[1][0].startswith, self._topics)):
                return item[1]
        return None
