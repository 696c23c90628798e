"""Who is where: nodes by address and name, ports handed out, listeners, and who waits for one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.kernel import Node, Process
from sim.network.connection import Endpoint

ANY_HOST = "0.0.0.0"
LOOPBACK_HOST = "127.0.0.1"
_ANY_NAMES = (ANY_HOST, "*", "", "::")
_LOOPBACK_NAMES = (LOOPBACK_HOST, "localhost", "::1")
_LISTENING_PORTS = range(32_768, 49_152)
_CONNECTING_PORTS = range(49_152, 61_000)

Hello = Any
OnAccept = Callable[[Endpoint, Hello], None]


@dataclass(eq=False)
class Listener:
    """A bound address. ``port`` is a number, or the path of a socket inside the node."""

    directory: Directory
    process: Process
    host: str
    port: int | str
    hello: Hello
    on_accept: OnAccept
    closed: bool = False

    def close(self) -> None:
        """Accept no more; connections that were accepted live on."""
        if not self.closed:
            self.closed = True
            self.directory.listeners.remove(self)


@dataclass
class _Ports:
    """How many ports a node has handed out, so that none comes again soon."""

    listening: int = 0
    connecting: int = 0


@dataclass(eq=False)
class _Watcher:
    """Somebody who will try again as soon as there is a listener."""

    process: Process
    host: str
    port: int | str
    notify: Callable[[], None]


class Directory:
    """Addresses of one network."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._nodes: dict[str, Node] = {}
        self._ports: dict[str, _Ports] = {}
        self._watchers: list[_Watcher] = []

    def add_node(self, node: Node) -> None:
        """Make a node's address and name known."""
        self._nodes[node.ip] = self._nodes[node.name] = node
        self._ports.setdefault(node.ip, _Ports())

    def resolve(self, node: Node, host: str) -> Node | None:
        """Which node ``host`` means on ``node``; None when nobody has that address or name."""
        if host in _LOOPBACK_NAMES or host in (node.ip, node.name):
            return node
        return self._nodes.get(host)

    def local_host(self, node: Node, host: str) -> str:
        """The address to listen on that ``host`` means on ``node``."""
        if host in _LOOPBACK_NAMES:
            return LOOPBACK_HOST
        if host in _ANY_NAMES:
            return ANY_HOST
        if host in (node.ip, node.name):
            return node.ip
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))

    def allocate_port(self, node: Node) -> int:
        """A port nobody on the node listens on and that was not handed out lately."""
        self.add_node(node)
        ports = self._ports[node.ip]
        for _ in _LISTENING_PORTS:
            port = _LISTENING_PORTS[ports.listening % len(_LISTENING_PORTS)]
            ports.listening += 1
            if self.port_free(node, ANY_HOST, port):
                return port
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def connecting_port(self, node: Node) -> int:
        """The port of the side that connects."""
        self.add_node(node)
        ports = self._ports[node.ip]
        ports.connecting += 1
        return _CONNECTING_PORTS[(ports.connecting - 1) % len(_CONNECTING_PORTS)]

    def port_free(self, node: Node, host: str, port: int | str) -> bool:
        """Whether ``host:port``, with a host as ``local_host`` returns it, can be bound."""
        others = [listener.host for listener in self._on_port(node, port)]
        return not others or not (host == ANY_HOST or ANY_HOST in others or host in others)

    def enter(self, listener: Listener) -> None:
        """Bind; the caller has made sure that the address is free."""
        self.listeners.append(listener)
        self._notify_watchers()

    def find(self, source: Node, host: str, port: int | str) -> Listener | None:
        """Who answers at ``host:port`` as seen from ``source``."""
        target = self.resolve(source, host)
        if target is None:
            return None
        bound_to = LOOPBACK_HOST if host in _LOOPBACK_NAMES else target.ip
        for listener in self._on_port(target, port):
            if listener.host in (ANY_HOST, bound_to):
                return listener
        return None

    def when_listening(
        self, process: Process, host: str, port: int | str, notify: Callable[[], None]
    ) -> None:
        """Call ``notify`` once, as soon as an attempt to connect would find a listener."""
        self._watchers.append(_Watcher(process, host, port, notify))
        self._notify_watchers()

    def forget_process(self, process: Process) -> None:
        """The process has died."""
        self._watchers = [w for w in self._watchers if w.process is not process]
        for listener in [x for x in self.listeners if x.process is process]:
            listener.close()

    def _notify_watchers(self) -> None:
        waiting, self._watchers = self._watchers, []
        for watcher in waiting:
            if self.find(watcher.process.node, watcher.host, watcher.port) is None:
                self._watchers.append(watcher)
            else:
                watcher.notify()

    def _on_port(self, node: Node, port: int | str) -> list[Listener]:
        return [x for x in self.listeners if x.port == port and x.process.node.ip == node.ip]
