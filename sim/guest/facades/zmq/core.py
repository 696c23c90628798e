"""A socket without its Python interface: messages in and out, waiting, life and death.

Differences from libzmq that a program can notice:

- a message goes to the operating system within the call that sends it, if there is a connection
  that takes it; libzmq's I/O thread does that a moment later;
- closing releases an address at once, where libzmq does so a moment later;
- a thread that waits in a socket that another thread closes gets ENOTSOCK; libzmq leaves it
  undefined;
- the I/O goes on while the process is paused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import zmq
from simpy.events import Event

from sim.guest.facades.proxy import unsupported
from sim.guest.facades.waiting import enter
from sim.guest.facades.zmq.errors import zmq_error
from sim.guest.facades.zmq.options import Options
from sim.guest.facades.zmq.patterns import Dealer, Pair, Pattern, Pull, Push, Route
from sim.guest.facades.zmq.peers import Peers
from sim.guest.facades.zmq.pipe import Frames
from sim.guest.facades.zmq.pubsub import Pub, Sub
from sim.guest.facades.zmq.routing import Rep, Req, Router
from sim.network import digest_of, size_of
from sim.units import MS

if TYPE_CHECKING:
    from sim.guest.facades.zmq.context_core import ContextCore

_T = TypeVar("_T")
# Plain numbers: arithmetic on enum members is slow.
_NOBLOCK, _SNDMORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
_SNDTIMEO, _RCVTIMEO = int(zmq.SNDTIMEO), int(zmq.RCVTIMEO)


class SocketCore:
    """One socket of a context."""

    def __init__(self, context: ContextCore, socket_type: int) -> None:
        self.context = context
        self.type = socket_type
        self.closed = False
        self.waiters: dict[Event, None] = {}
        self._kernel = context.kernel
        self._options = Options(context.kernel, socket_type)
        self._pattern = self._make_pattern()
        self._peers = Peers(context, socket_type, self._options, self._pattern, self._changed)
        self._last_endpoint = b""
        self._route: Route | None = None
        self._outgoing: list[bytes] = []
        self._incoming: deque[bytes] = deque()

    def _make_pattern(self) -> Pattern:
        makers: dict[int, Callable[[], Pattern]] = {
            zmq.DEALER: Dealer,
            zmq.ROUTER: partial(Router, self._options.number),
            zmq.REQ: Req,
            zmq.REP: Rep,
            zmq.PUSH: Push,
            zmq.PULL: Pull,
            zmq.PUB: partial(Pub, partial(self._report_drop, "high-water-mark")),
            zmq.SUB: Sub,
            zmq.PAIR: Pair,
        }
        if self.type in makers:
            return makers[self.type]()
        try:
            name = f"zmq.{zmq.SocketType(self.type).name}"
        except ValueError:
            raise zmq_error(zmq.EINVAL) from None
        raise unsupported(self._kernel, f"the socket type {name}")

    # ---------------------------------------------------------------- options

    def set(self, option: int, value: Any) -> None:
        """``zmq_setsockopt``."""
        self.check_usable()
        if option not in (zmq.SUBSCRIBE, zmq.UNSUBSCRIBE):
            self._options.set(option, value)
            return
        if not isinstance(self._pattern, Sub):
            raise zmq_error(zmq.EINVAL)
        if not isinstance(value, bytes):
            raise TypeError(f"expected bytes, got: {value!r}")
        if option == zmq.SUBSCRIBE:
            self._pattern.subscribe(value)
        else:
            self._pattern.unsubscribe(value)

    def get(self, option: int) -> int | bytes:
        """``zmq_getsockopt``."""
        self.check_usable()
        if option == zmq.TYPE:
            return self.type
        if option == zmq.RCVMORE:
            return int(bool(self._incoming))
        if option == zmq.EVENTS:
            return self.events()
        if option == zmq.LAST_ENDPOINT:
            return self._last_endpoint
        if option in (zmq.SUBSCRIBE, zmq.UNSUBSCRIBE):
            raise zmq_error(zmq.EINVAL)
        return self._options.get(option)

    # ------------------------------------------------------------------ peers

    def bind(self, address: str) -> None:
        """``zmq_bind``."""
        self.check_usable()
        self._last_endpoint = self._peers.bind(address).encode()

    def connect(self, address: str) -> None:
        """``zmq_connect``."""
        self.check_usable()
        self._peers.connect(address)
        self._last_endpoint = address.encode()

    def unbind(self, address: str) -> None:
        """``zmq_unbind``."""
        self.check_usable()
        self._peers.unbind(address)

    def disconnect(self, address: str) -> None:
        """``zmq_disconnect``."""
        self.check_usable()
        self._peers.disconnect(address)

    # --------------------------------------------------------------- messages

    def send(self, part: bytes, flags: int) -> None:
        """Send one part; the message leaves with its last part."""
        enter(self._kernel)
        self.check_usable()
        self._pattern.check_send()
        if self._route is None:
            timeout_ms = 0 if flags & _NOBLOCK else self._options.number(_SNDTIMEO)
            self._route = self._await(lambda: self._pattern.route(part), timeout_ms, "room to send")
        self._outgoing.append(part)
        if not flags & _SNDMORE:
            self._send_message()

    def _send_message(self) -> None:
        route, frames = self._route, self._outgoing
        assert route is not None
        self._route, self._outgoing = None, []
        if not route and self._pattern.reports_drops:
            self._report_drop("unroutable", frames)
        self._pattern.deliver(route, frames)

    def recv(self, flags: int) -> bytes:
        """Receive one part."""
        enter(self._kernel, within=True)
        self.check_usable()
        if not self._incoming:
            self._pattern.check_receive()
            timeout_ms = 0 if flags & _NOBLOCK else self._options.number(_RCVTIMEO)
            self._incoming.extend(self._await(self._pattern.receive, timeout_ms, "a message"))
            self._kernel.env.calls_out += 1  # its sender may have more room
        part = self._incoming.popleft()
        if not self._incoming:
            self._pattern.received()
        return part

    def events(self) -> int:
        """What poll() would report."""
        mask = 0
        if self._incoming or self._pattern.may_receive():
            mask |= zmq.POLLIN
        if self._route is not None or self._pattern.may_send():
            mask |= zmq.POLLOUT
        return int(mask)

    def check_usable(self) -> None:
        """Raise unless the socket and its context are open."""
        if self.closed:
            raise zmq_error(zmq.ENOTSOCK)
        if self.context.terminated:
            raise zmq_error(zmq.ETERM)

    def _await(self, attempt: Callable[[], _T | None], timeout_ms: int, what: str) -> _T:
        kernel = self._kernel
        deadline_ns = None if timeout_ms < 0 else kernel.now_ns + timeout_ms * MS
        while (result := attempt()) is None:
            left_ns = None if deadline_ns is None else deadline_ns - kernel.now_ns
            if left_ns is not None and left_ns <= 0:
                raise zmq_error(zmq.EAGAIN)
            event = kernel.event()
            self.waiters[event] = None
            try:
                kernel.wait(event, left_ns, what=lambda: f"{what} on {self.describe()}")
            finally:
                self.waiters.pop(event, None)
            self.check_usable()
        return result

    def describe(self) -> str:
        """For deadlock reports."""
        name = zmq.SocketType(self.type).name
        return f"a {name} socket of {self._last_endpoint.decode() or 'no address'}"

    def _report_drop(self, reason: str, frames: Frames) -> None:
        self._kernel.record(
            "message-dropped",
            source=self.context.process.path,
            target=None,
            port=None,
            bytes=size_of(frames),
            digest=digest_of(frames),
            reason=reason,
        )

    # ---------------------------------------------------------- life and death

    def _changed(self) -> None:
        self.wake()
        if self.closed and self._peers.flushed:
            self.context.socket_gone(self)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        for event in self.waiters:
            if not event.triggered:
                event.succeed()

    def close(self) -> None:
        """``zmq_close``; what waits to be sent lingers."""
        if not self.closed:
            self._kernel.env.calls_out += 1
            self.closed = True
            self._peers.close()
            self._changed()

    def die(self) -> None:
        """The process has crashed."""
        self.closed = True
        self._peers.die()
