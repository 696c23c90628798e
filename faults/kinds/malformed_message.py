"""Messages of strangers: what port scanners, health checks and other versions send."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec
import zmq

from faults.fault import CannotStrike, Fault
from faults.message_fault import Port
from faults.scene import Scene
from sim.guest.facades.zmq.transport import Greeting
from sim.kernel import Node, Process
from sim.network import Endpoint, Listener
from sim.units import MS

Content = Literal[
    "random", "empty", "wrong-type", "truncated", "oversized", "nested", "infinite", "huge"
]
_STRANGER = Node("stranger", "10.0.255.254")
_SOCKET_TYPES = (zmq.DEALER, zmq.REQ, zmq.PUSH, zmq.PUB, zmq.SUB, zmq.PAIR)
_STAYS_NS = 100 * MS


class MalformedMessage(Fault, frozen=True, tag="malformed-message"):
    """A stranger connects to the listening ports of an engine and sends nonsense.

    ``content``: 64 random bytes; an empty frame; a msgpack integer; a msgpack map of which the
    end is missing; a megabyte; 2000 arrays in each other; or a question of the connector `hybrid`
    about a hold whose number is infinite, or has 30 digits as text. ``port`` chooses one of the
    ports.
    """

    content: Content = "random"
    port: Port | None = None

    takes: ClassVar[tuple[str, ...]] = ("node",)

    def strike(self, scene: Scene) -> None:
        engine = scene.engine()
        listeners = [
            listener
            for listener in scene.world.network.directory.listeners
            if listener.process.owner == engine.name and self.port in (None, listener.port)
        ]
        reachable = [listener for listener in listeners if isinstance(listener.port, int)]
        if not reachable:
            raise CannotStrike(f"nobody listens on {engine.name}:{self.port or '*'}")
        frame = self._frame(scene)
        scene.hit(scene.lifecycle.requests_on(engine.name))
        for listener in reachable:
            _send(scene, listener, frame)

    def _frame(self, scene: Scene) -> bytes:
        return {
            "random": scene.rng.randbytes(64),
            "empty": b"",
            "wrong-type": b"\x2a",
            "truncated": b"\x83\xa4type\xa6notify\xa6req_id",
            "oversized": b"x" * (1 << 20),
            "nested": b"\x91" * 2000,
            "infinite": _question(ask=1, hold=float("inf")),
            "huge": _question(ask="1" * 30, hold=1),
        }[self.content]


def _question(**numbers: object) -> bytes:
    fields = {"type": "hybrid", "version": 3, "incarnation": "", **numbers}
    return msgspec.msgpack.encode(fields)


def _send(scene: Scene, listener: Listener, frame: bytes) -> None:
    stranger = Process(_STRANGER, "scanner")

    def opened(endpoint: Endpoint, _hello: object) -> None:
        endpoint.send([frame])
        scene.kernel.call_later(_STAYS_NS, endpoint.close)

    scene.world.network.dial(
        stranger,
        listener.process.node.ip,
        listener.port,
        hello=_greeting(listener.hello),
        on_open=opened,
        on_refused=lambda: None,
    )


def _greeting(hello: object) -> Greeting | None:
    """One that a ZMQ listener talks to; the fault is in what follows."""
    if not isinstance(hello, Greeting):
        return None
    fitting = (t for t in _SOCKET_TYPES if hello.fits(Greeting(t, b"stranger")))
    return Greeting(next(fitting), b"stranger")
