"""Where the peers of a socket come from and how they go: bind, connect, loss, close, linger."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import zmq

from sim.guest.facades.proxy import unsupported
from sim.guest.facades.zmq.addresses import Address, parse
from sim.guest.facades.zmq.errors import zmq_error
from sim.guest.facades.zmq.options import Options
from sim.guest.facades.zmq.patterns import Pattern
from sim.guest.facades.zmq.pipe import Frames, Link, Pipe
from sim.guest.facades.zmq.transport import Dialer, Greeting, InprocLink, service
from sim.network import Endpoint, Listener
from sim.units import MS

if TYPE_CHECKING:
    from sim.guest.facades.zmq.context_core import ContextCore


class Peers:
    """The pipes of one socket and what keeps them connected. Owns pipes; calls ``on_change``."""

    def __init__(
        self,
        context: ContextCore,
        socket_type: int,
        options: Options,
        pattern: Pattern,
        on_change: Callable[[], None],
    ) -> None:
        self._context = context
        self._type = socket_type
        self._options = options
        self._pattern = pattern
        self._on_change = on_change
        self._bound: dict[str, Listener | str] = {}
        self._connected: list[tuple[str, Pipe]] = []
        self._dialers: dict[Pipe, Dialer] = {}
        self._closed = False
        self._flushing: dict[Pipe, None] = {}

    @property
    def flushed(self) -> bool:
        """After ``close``: whether nothing lingers any more."""
        return not self._flushing

    # ------------------------------------------------------- bind and connect

    def bind(self, text: str) -> str:
        """Accept connections at an address; returns it with the port that was chosen."""
        address = parse(self._context.kernel, text, to_bind=True)
        if address.transport == "inproc":
            self._context.inproc.bind(address.host, self)
            self._bound[text] = address.host
            return text
        listener = self._listen(address)
        if address.transport == "tcp":
            host = f"[{listener.host}]" if ":" in listener.host else listener.host
            text = f"tcp://{host}:{listener.port}"
        self._bound[text] = listener
        return text

    def _listen(self, address: Address) -> Listener:
        host, port = service(address)
        greeting = self._greeting()
        try:
            return self._context.network.listen(
                self._context.process,
                host,
                port,
                hello=greeting,
                on_accept=partial(self._accept, greeting),
            )
        except OSError as error:
            code = error.errno or errno.EINVAL
            is_name = code == errno.EADDRNOTAVAIL and not host.replace(".", "").isdecimal()
            raise zmq_error(errno.ENODEV if is_name else code) from None

    def connect(self, text: str) -> None:
        """Stay connected to an address, whether anybody listens there yet or not."""
        address = parse(self._context.kernel, text, to_bind=False)
        pipe = self._new_pipe()
        self._connected.append((text, pipe))
        if address.transport == "inproc":
            self._pattern.attach(pipe)
            self._context.inproc.connect(address.host, pipe)
            return
        dialer = Dialer(
            self._context.network,
            self._context.process,
            address,
            pipe,
            self._options,
            self._type,
            self._context.chance,
            self._dialled,
        )
        self._dialers[pipe] = dialer
        if not dialer.immediate:
            self._pattern.attach(pipe)

    def unbind(self, text: str) -> None:
        """Accept no more connections there; those that exist stay."""
        bound = self._bound.pop(text, None)
        if bound is None:
            raise zmq_error(errno.ENOENT)
        self._release(bound)

    def disconnect(self, text: str) -> None:
        """Close one connection made to an address; what waits for it lingers."""
        for i, (connected_to, pipe) in enumerate(self._connected):
            if connected_to == text:
                del self._connected[i]
                self._close_pipe(pipe, self._options.number(zmq.LINGER))
                return
        raise zmq_error(errno.ENOENT)

    def _greeting(self) -> Greeting:
        return Greeting(self._type, self._options.routing_id)

    def _new_pipe(self) -> Pipe:
        return Pipe(self, self._options.number(zmq.SNDHWM), self._options.number(zmq.RCVHWM))

    def _release(self, bound: Listener | str) -> None:
        if isinstance(bound, str):
            self._context.inproc.unbind(bound)
        else:
            bound.close()

    # ------------------------------------------------------------ connections

    def _dialled(self, dialer: Dialer, endpoint: Endpoint, greeting: Greeting) -> None:
        if dialer.immediate:
            self._replace_pipe(dialer)
        self._link_endpoint(dialer.pipe, endpoint, greeting.routing_id)

    def _replace_pipe(self, dialer: Dialer) -> None:
        old, dialer.pipe = dialer.pipe, self._new_pipe()
        del self._dialers[old]
        self._dialers[dialer.pipe] = dialer
        self._connected = [(t, dialer.pipe if p is old else p) for t, p in self._connected]
        self._pattern.attach(dialer.pipe)

    def _accept(self, greeting: Greeting, endpoint: Endpoint, other: object) -> None:
        if self._closed or not isinstance(other, Greeting) or not greeting.fits(other):
            endpoint.close()
            return
        pipe = self._new_pipe()
        if self._pattern.attach(pipe):
            self._link_endpoint(pipe, endpoint, other.routing_id)
        else:
            endpoint.close()

    def _link_endpoint(self, pipe: Pipe, endpoint: Endpoint, routing_id: bytes) -> None:
        endpoint.on_message = partial(self._came_over_network, pipe)
        endpoint.on_close = partial(self.pipe_lost, pipe)
        endpoint.on_writable = pipe.pump
        self.link(pipe, endpoint, routing_id)

    def link(self, pipe: Pipe, link: Link, routing_id: bytes) -> None:
        """The pipe is connected, to a peer that calls itself ``routing_id``."""
        pipe.link = link
        pipe.routing_id = routing_id
        self._pattern.linked(pipe)
        pipe.pump()
        self._on_change()

    def accept_inproc(self, theirs: Pipe) -> None:
        """Join a pipe of another socket of this context with a new one of this socket."""
        ours = self._new_pipe()
        if not self._pattern.attach(ours):
            theirs.owner.pipe_lost(theirs)
            return
        other = theirs.owner
        assert isinstance(other, Peers)
        ours.link, theirs.link = InprocLink(theirs), InprocLink(ours)
        self.link(ours, ours.link, other._options.routing_id)
        other.link(theirs, theirs.link, self._options.routing_id)

    # --------------------------------------------------------- from the pipes

    def _came_over_network(self, pipe: Pipe, frames: Frames) -> None:
        longest = self._options.number(zmq.MAXMSGSIZE)
        if 0 <= longest < max(map(len, frames)):
            kernel = self._context.kernel
            raise unsupported(kernel, f"a message longer than zmq.MAXMSGSIZE, {longest} bytes,")
        self.pipe_arrived(pipe, frames)

    def pipe_arrived(self, pipe: Pipe, frames: Frames) -> None:
        """A message has come for the pipe."""
        if not self._closed:
            self._pattern.arrived(pipe, frames)

    def pipe_readable(self, pipe: Pipe) -> None:
        """The pipe had nothing to read, and now has."""
        self._pattern.readable(pipe)
        self._on_change()

    def pipe_progressed(self, pipe: Pipe) -> None:
        """The pipe may be writable, or drained."""
        if pipe in self._flushing and pipe.drained:
            self._drop(pipe)
        self._on_change()

    def pipe_lost(self, pipe: Pipe) -> None:
        """The pipe's connection has gone."""
        dialer = self._dialers.get(pipe)
        pipe.link = None
        if dialer is not None and dialer.only_once:
            self._end(pipe)
            return
        if dialer is None or dialer.immediate:
            pipe.abandon()
            self._flushing.pop(pipe, None)
            if not pipe.readable:
                self._pattern.detach(pipe)
        if dialer is not None:
            dialer.lost()
        self._on_change()

    def _end(self, pipe: Pipe) -> None:
        """As libzmq ends what it will not connect again: unread messages are lost, too."""
        self._connected = [each for each in self._connected if each[1] is not pipe]
        self._drop(pipe)
        self._pattern.discard(pipe)
        self._on_change()

    # ---------------------------------------------------------------- closing

    def close(self) -> None:
        """Close everything; what waits to be sent lingers as LINGER says."""
        self._closed = True
        for bound in self._bound.values():
            self._release(bound)
        self._bound.clear()
        linger_ms = self._options.number(zmq.LINGER)
        for pipe in list(dict.fromkeys([*self._pattern.pipes, *self._dialers])):
            self._close_pipe(pipe, linger_ms)

    def die(self) -> None:
        """The process is dead; its network connections are closed by the operating system."""
        self._closed = True
        for pipe, dialer in self._dialers.items():
            dialer.stop()
            pipe.abandon()
        for pipe in self._pattern.pipes:
            pipe.abandon()
        self._flushing.clear()

    def _close_pipe(self, pipe: Pipe, linger_ms: int) -> None:
        if pipe.drained or linger_ms == 0:
            self._drop(pipe)
            return
        self._flushing[pipe] = None
        if linger_ms > 0:
            self._context.kernel.call_later(linger_ms * MS, self._give_up, pipe)

    def _give_up(self, pipe: Pipe) -> None:
        if pipe in self._flushing:
            self._drop(pipe)
            self._on_change()

    def _drop(self, pipe: Pipe) -> None:
        self._flushing.pop(pipe, None)
        dialer = self._dialers.pop(pipe, None)
        if dialer is not None:
            dialer.stop()
        pipe.shut()
        self._context.inproc.forget(pipe)
        if not pipe.readable:
            self._pattern.detach(pipe)
