"""Connections behind pipes: listeners, dialers that try again, and pairs inside a context.

A dialer whose peer does not answer or has gone waits between one and two RECONNECT_IVL, like
libzmq. While nobody listens at the address it does not poll: it waits for a listener and then
for the rest of the interval in which its next attempt would have fallen. So an unreachable peer
costs no events and cannot hide a deadlock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from sim.guest.facades.zmq.addresses import Address
from sim.guest.facades.zmq.options import Options
from sim.guest.facades.zmq.pipe import Frames, Pipe
from sim.kernel import Process
from sim.network import Endpoint, Network
from sim.units import MS

# Which socket types talk to which; a connection between others is closed at once.
_PARTNERS: dict[int, tuple[int, ...]] = {
    zmq.PAIR: (zmq.PAIR,),
    zmq.PUB: (zmq.SUB,),
    zmq.SUB: (zmq.PUB,),
    zmq.REQ: (zmq.REP, zmq.ROUTER),
    zmq.REP: (zmq.REQ, zmq.DEALER),
    zmq.DEALER: (zmq.REP, zmq.DEALER, zmq.ROUTER),
    zmq.ROUTER: (zmq.REQ, zmq.DEALER, zmq.ROUTER),
    zmq.PULL: (zmq.PUSH,),
    zmq.PUSH: (zmq.PULL,),
}


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the two ends of a connection tell each other first."""

    socket_type: int
    routing_id: bytes

    def fits(self, other: object) -> bool:
        """Whether the other end speaks zmq and is of a type that this one talks to."""
        return isinstance(other, Greeting) and other.socket_type in _PARTNERS[self.socket_type]


def service(address: Address) -> tuple[str, int | str]:
    """Host and port in terms of the network; ipc is a path on the loopback interface."""
    return ("localhost", address.host) if address.transport == "ipc" else address[1:]


class Dialer:
    """Keeps one pipe of a connecting socket connected.

    With ``immediate`` the pipe lives only as long as a connection, and each gets a new one. With
    ``only_once``, a negative RECONNECT_IVL, it ends with its first connection; if that was
    refused it stays, and leads nowhere.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        address: Address,
        pipe: Pipe,
        options: Options,
        socket_type: int,
        chance: random.Random,
        on_link: Callable[[Dialer, Endpoint, Greeting], None],
    ) -> None:
        self.pipe = pipe
        self.immediate = bool(options.number(zmq.IMMEDIATE))
        self.stopped = False
        self._network = network
        self._process = process
        self._host, self._port = service(address)
        self._greeting = Greeting(socket_type, options.routing_id)
        self._interval_ns = options.number(zmq.RECONNECT_IVL) * MS
        self.only_once = self._interval_ns < 0
        self._chance = chance
        self._on_link = on_link
        self._not_before_ns = 0
        self._attempt()

    def stop(self) -> None:
        """Never connect again."""
        self.stopped = True

    def lost(self) -> None:
        """The connection has gone, or could not be made."""
        if self.only_once:
            self.stop()
        if self.stopped:
            return
        now_ns = self._network.kernel.now_ns
        self._not_before_ns = now_ns + self._interval_ns + self._random_part()
        self._network.directory.when_listening(
            self._process, self._host, self._port, self._someone_listens
        )

    def _someone_listens(self) -> None:
        kernel = self._network.kernel
        wait_ns = self._not_before_ns - kernel.now_ns
        kernel.call_later(wait_ns if wait_ns > 0 else self._random_part(), self._attempt)

    def _random_part(self) -> int:
        return self._chance.randrange(max(1, self._interval_ns))

    def _attempt(self) -> None:
        if not self.stopped:
            self._network.dial(
                self._process,
                self._host,
                self._port,
                hello=self._greeting,
                on_open=self._opened,
                on_refused=self.lost,
            )

    def _opened(self, endpoint: Endpoint, greeting: object) -> None:
        if self.stopped:
            endpoint.close()
        elif isinstance(greeting, Greeting) and self._greeting.fits(greeting):
            self._on_link(self, endpoint, greeting)
        else:  # libzmq does not try again either, and lets the queue fill
            endpoint.close()
            self.stop()


class InprocLink:
    """Joins two pipes of one context; nothing takes time and nothing gets lost."""

    def __init__(self, there: Pipe) -> None:
        self._there = there

    @property
    def writable(self) -> bool:
        """Whether the other socket's queue has room."""
        return self._there.has_room

    def send(self, frames: Frames, kind: str = "message") -> None:
        """Put a message into the other socket's queue."""
        self._there.owner.pipe_arrived(self._there, frames)

    def acknowledge(self, frames: Frames) -> None:
        """The other socket may go on sending."""
        self._there.pump()

    def close(self) -> None:
        """The other pipe can only be read any more."""
        if self._there.link is not None:
            self._there.owner.pipe_lost(self._there)
