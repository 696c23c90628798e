"""pyzmq's classes on the simulated sockets: Context, Socket, Poller.

What pyzmq writes in Python on top of its compiled core (multipart, strings, JSON, options as
attributes, random ports, context managers) is pyzmq's own code here, too.
"""

from __future__ import annotations

from typing import Any, ClassVar

import zmq
from zmq.sugar.attrsettr import AttributeSetter

from sim.guest.facades.proxy import unsupported
from sim.guest.facades.waiting import enter
from sim.guest.facades.zmq.context_core import ContextCore
from sim.guest.facades.zmq.core import SocketCore
from sim.guest.facades.zmq.errors import zmq_error
from sim.kernel import Kernel
from sim.network import Network
from sim.units import MS

CONTEXTS = "zmq contexts"
_INSTANCE = "zmq context instance"
_real: Any = zmq.Socket


class Socket(AttributeSetter):
    """``zmq.Socket``."""

    context: Context
    _core: SocketCore

    def __init__(self, context: Context, socket_type: int) -> None:
        self.context = context
        self._core = context._core.socket(socket_type)

    def __del__(self) -> None:
        # After the run an effect would hold on to the world that is being freed.
        if "_core" in self.__dict__ and not self.context._kernel.closing:
            self._core.close()

    def __repr__(self) -> str:
        closed = " closed" if self.closed else ""
        return f"<zmq.Socket(zmq.{zmq.SocketType(self._core.type).name}){closed}>"

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_args: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the socket, or its context, has been closed."""
        return self._core.closed or self.context.closed

    @property
    def type(self) -> zmq.SocketType:
        """The socket type."""
        return zmq.SocketType(self._core.type)

    def close(self, linger: int | None = None) -> None:
        """Close; with ``linger``, set LINGER before."""
        self.context._kernel.checkpoint()
        if not self._core.closed:
            if linger is not None and not self._core.context.terminated:
                self._core.set(zmq.LINGER, linger)
            self._core.close()

    def set(self, option: int, value: Any) -> None:
        """``zmq_setsockopt``."""
        self.context._kernel.checkpoint()
        if isinstance(value, str):
            raise TypeError("unicode not allowed, use setsockopt_string")
        self._core.set(option, value)

    def get(self, option: int) -> int | bytes:
        """``zmq_getsockopt``."""
        self.context._kernel.checkpoint()
        return self._core.get(option)

    setsockopt = set
    getsockopt = get

    def __setattr__(self, key: str, value: Any) -> None:
        if key.lower() in ("subscribe", "unsubscribe"):
            option = zmq.SUBSCRIBE if key.lower() == "subscribe" else zmq.UNSUBSCRIBE
            self.set(option, value.encode() if isinstance(value, str) else value)
        else:
            super().__setattr__(key, value)

    def bind(self, addr: str) -> Any:
        """Accept connections at an address."""
        self._with_address(self._core.bind, addr)
        return self._bind_cm(addr)

    def connect(self, addr: str) -> Any:
        """Connect to an address, whether anybody listens there yet or not."""
        self._with_address(self._core.connect, addr)
        return self._connect_cm(addr)

    def unbind(self, addr: str) -> None:
        """Stop accepting connections at an address."""
        self.context._kernel.checkpoint()
        self._core.unbind(_text(addr))

    def disconnect(self, addr: str) -> None:
        """Close the connection to an address."""
        self.context._kernel.checkpoint()
        self._core.disconnect(_text(addr))

    def _with_address(self, call: Any, addr: str) -> None:
        self.context._kernel.checkpoint()
        try:
            call(_text(addr))
        except zmq.ZMQError as error:
            error.strerror = f"{error.strerror} (addr={addr!r})"
            raise

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False) -> None:
        """Send one part of a message."""
        if isinstance(data, str):
            raise TypeError("unicode not allowed, use send_string")
        if track:
            raise unsupported(self.context._kernel, "zmq.Socket.send(track=True)")
        self._core.send(_payload(data), int(flags))

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> bytes:
        """Receive one part of a message."""
        if not copy:
            raise unsupported(self.context._kernel, "zmq.Socket.recv(copy=False)")
        return self._core.recv(int(flags))

    def poll(self, timeout: int | None = None, flags: int = zmq.POLLIN) -> int:
        """Wait for events; returns those that have happened, 0 after the time-out."""
        if self.closed:
            raise zmq_error(zmq.ENOTSUP)
        poller = self.context.poller_class()
        poller.register(self, flags)
        events: dict[Any, int] = dict(poller.poll(timeout))
        return events.get(self, 0)

    def get_monitor_socket(self, *_args: Any, **_kwargs: Any) -> Any:
        """Not simulated."""
        raise unsupported(self.context._kernel, "zmq.Socket.get_monitor_socket")

    _bind_cm = _real._bind_cm
    _connect_cm = _real._connect_cm
    bind_to_random_port = _real.bind_to_random_port
    send_multipart = _real.send_multipart
    recv_multipart = _real.recv_multipart
    send_serialized = _real.send_serialized
    recv_serialized = _real.recv_serialized
    send_string = send_unicode = _real.send_string
    recv_string = recv_unicode = _real.recv_string
    send_json = _real.send_json
    recv_json = _real.recv_json
    send_pyobj = _real.send_pyobj
    recv_pyobj = _real.recv_pyobj
    _deserialize = _real._deserialize
    subscribe = _real.subscribe
    unsubscribe = _real.unsubscribe
    set_string = setsockopt_string = setsockopt_unicode = _real.set_string
    get_string = getsockopt_string = getsockopt_unicode = _real.get_string
    get_hwm = _real.get_hwm
    set_hwm = _real.set_hwm
    hwm = _real.hwm


class Poller(zmq.Poller):
    """``zmq.Poller`` for zmq sockets; file descriptors are refused."""

    _kernel: ClassVar[Kernel]

    def poll(self, timeout: int | None = None) -> list[tuple[Any, int]]:
        """Wait for events on the registered sockets, ``timeout`` in milliseconds."""
        enter(self._kernel, within=True)
        self._check_sockets()
        if not self.sockets:
            return []  # pyzmq does not wait for nothing
        limited = timeout is not None and timeout >= 0
        deadline_ns = self._kernel.now_ns + int(timeout or 0) * MS if limited else None
        while not (ready := self._ready()):
            left_ns = None if deadline_ns is None else deadline_ns - self._kernel.now_ns
            if left_ns is not None and left_ns <= 0:
                break
            self._wait(left_ns)
        return ready

    def _check_sockets(self) -> None:
        for socket, _flags in self.sockets:
            if not isinstance(socket, Socket):
                raise unsupported(self._kernel, f"polling {socket!r}, which is no zmq socket,")

    def _ready(self) -> list[tuple[Any, int]]:
        ready = []
        for socket, flags in self.sockets:
            socket._core.check_usable()
            events = socket._core.events() & flags
            if events:
                ready.append((socket, int(events)))
        return ready

    def _wait(self, timeout_ns: int | None) -> None:
        event = self._kernel.event()
        cores = [socket._core for socket, _flags in self.sockets]
        for core in cores:
            core.waiters[event] = None
        try:
            self._kernel.wait(event, timeout_ns, what=lambda: _describe(cores), within=True)
        finally:
            for core in cores:
                core.waiters.pop(event, None)


def _describe(cores: list[SocketCore]) -> str:
    return "events of " + ", ".join(core.describe() for core in cores)


class Context(AttributeSetter):
    """``zmq.Context``. One instance() for each simulated process."""

    _kernel: ClassVar[Kernel]
    _network: ClassVar[Network]
    _chance: ClassVar[Any]
    _socket_class: ClassVar[type[Socket]] = Socket
    poller_class: ClassVar[type[Poller]]
    sockopts: dict[int, Any]
    _core: ContextCore

    def __init__(self, io_threads: int = 1) -> None:
        process = self._kernel.require_task("making a zmq context").process
        self.sockopts = {}
        self._core = ContextCore(self._kernel, self._network, process, self._chance)
        living = [core for core in process.resources.get(CONTEXTS, []) if not core.closed]
        process.resources[CONTEXTS] = [*living, self._core]

    @classmethod
    def instance(cls, io_threads: int = 1) -> Context:
        """The context that belongs to the current simulated process."""
        cls._kernel.checkpoint()
        resources = cls._kernel.require_task("zmq.Context.instance").process.resources
        context: Context | None = resources.get(_INSTANCE)
        if context is None or context.closed:
            context = resources[_INSTANCE] = cls(io_threads)
        return context

    def __del__(self) -> None:
        """As destroy(), but whoever drops the last reference does not wait."""
        if "_core" in self.__dict__ and not self.closed and not self._kernel.closing:
            self._close_sockets(None)
            self._core.begin_termination()

    def __repr__(self) -> str:
        return f"<zmq.Context({len(self._core.sockets)} sockets)>"

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_args: object) -> None:
        self.destroy()

    @property
    def closed(self) -> bool:
        """Whether the context has been terminated."""
        return self._core.closed

    def socket(self, socket_type: int) -> Socket:
        """A new socket."""
        self._kernel.checkpoint()
        if self.closed:
            raise zmq_error(zmq.ENOTSUP)
        socket = self._socket_class(self, socket_type)
        for option, value in self.sockopts.items():
            try:
                socket.set(option, value)
            except zmq.ZMQError:
                continue  # options of other socket types, as pyzmq does
        return socket

    def term(self) -> None:
        """Wake whoever waits in a socket, and wait until all sockets are closed."""
        self._core.terminate()

    def destroy(self, linger: int | None = None) -> None:
        """Close all sockets, then terminate."""
        if not self.closed:
            self._close_sockets(linger)
            self.term()

    def _close_sockets(self, linger: int | None) -> None:
        for core in list(self._core.sockets):
            if not core.closed:
                if linger is not None and not self._core.terminated:
                    core.set(zmq.LINGER, linger)
                core.close()

    def setsockopt(self, option: int, value: Any) -> None:
        """Set an option for sockets made from now on."""
        self.sockopts[option] = value

    def getsockopt(self, option: int) -> Any:
        """An option set with ``setsockopt``."""
        return self.sockopts[option]

    def set(self, option: int, value: Any) -> None:
        """Options of the context itself tune threads and limits that do not exist here."""
        raise unsupported(self._kernel, f"zmq.Context.set({option!r})")

    def get(self, option: int) -> Any:
        """Not simulated."""
        raise unsupported(self._kernel, f"zmq.Context.get({option!r})")

    def _set_attr_opt(self, name: str, opt: int, value: Any) -> None:
        if name in zmq.ContextOption.__members__:
            self.set(opt, value)
        else:
            self.sockopts[opt] = value

    def _get_attr_opt(self, name: str, opt: int) -> Any:
        if opt not in self.sockopts:
            raise AttributeError(name)
        return self.sockopts[opt]


def _text(addr: str | bytes) -> str:
    if isinstance(addr, bytes):
        return addr.decode()
    if not isinstance(addr, str):
        raise TypeError(f"Expected addr to be str, got addr={addr!r}")
    return addr


def _payload(data: Any) -> bytes:
    try:
        return bytes(memoryview(data))
    except TypeError:
        kind = type(data).__name__
        raise TypeError(f"a bytes-like object is required, not {kind!r}") from None
