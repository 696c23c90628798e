"""A context without its Python interface: its sockets, its inproc addresses, its end."""

from __future__ import annotations

import errno
import random

import zmq

from sim.guest.facades.waiting import enter
from sim.guest.facades.zmq.core import SocketCore
from sim.guest.facades.zmq.errors import zmq_error
from sim.guest.facades.zmq.peers import Peers
from sim.guest.facades.zmq.pipe import Pipe
from sim.kernel import Kernel, Process
from sim.network import Network


class InprocNames:
    """``inproc://`` addresses; connecting before binding works."""

    def __init__(self) -> None:
        self._bound: dict[str, Peers] = {}
        self._waiting: list[tuple[str, Pipe]] = []

    def bind(self, name: str, peers: Peers) -> None:
        """Take a name, and accept whoever waits for it."""
        if name in self._bound:
            raise zmq_error(errno.EADDRINUSE)
        self._bound[name] = peers
        waiting, self._waiting = self._waiting, []
        for wanted, pipe in waiting:
            self.connect(wanted, pipe)

    def connect(self, name: str, pipe: Pipe) -> None:
        """Join a pipe with the socket bound to a name, now or later."""
        if name in self._bound:
            self._bound[name].accept_inproc(pipe)
        else:
            self._waiting.append((name, pipe))

    def unbind(self, name: str) -> None:
        """Free a name."""
        del self._bound[name]

    def forget(self, pipe: Pipe) -> None:
        """The pipe no longer wants to be joined."""
        self._waiting = [item for item in self._waiting if item[1] is not pipe]


class ContextCore:
    """One context of a simulated process."""

    def __init__(
        self, kernel: Kernel, network: Network, process: Process, chance: random.Random
    ) -> None:
        self.kernel = kernel
        self.network = network
        self.process = process
        self.chance = chance
        self.inproc = InprocNames()
        self.sockets: list[SocketCore] = []
        self.terminated = False
        self.closed = False
        self._all_gone = kernel.event()

    def socket(self, socket_type: int) -> SocketCore:
        """``zmq_socket``."""
        if self.terminated:
            raise zmq_error(errno.ENOTSUP if self.closed else zmq.ETERM)
        core = SocketCore(self, socket_type)
        self.sockets.append(core)
        return core

    def socket_gone(self, core: SocketCore) -> None:
        """A socket is closed and nothing of it lingers."""
        if core in self.sockets:
            self.sockets.remove(core)
        if self.terminated and not self.sockets and not self._all_gone.triggered:
            self._all_gone.succeed()

    def begin_termination(self) -> None:
        """From now on every use of a socket but closing it fails, also where a thread waits."""
        self.terminated = True
        for core in self.sockets:
            core.wake()

    def terminate(self) -> None:
        """``zmq_ctx_term``: returns when all sockets are closed and have sent what lingered."""
        enter(self.kernel)
        if self.closed:
            return
        self.begin_termination()
        if self.sockets:
            self.kernel.wait(self._all_gone, what="the sockets of a terminated zmq context")
        self.closed = True

    def die(self) -> None:
        """The process has crashed."""
        self.terminated = self.closed = True
        for core in self.sockets:
            core.die()
