"""A TCP proxy that can lose and delay what passes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Literal

from hw_tests.process.messages import HOST

Direction = Literal["to-server", "to-client"]


class TcpProxy:
    """Passes connections on to a port of this machine until closed.

    Bytes that are swallowed are lost for their connection, which is of no use afterwards: `cut` it.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listening = socket.create_server((HOST, 0))
        self.port = int(self._listening.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._swallowing: frozenset[Direction] = frozenset()
        self.delay_s = 0.0
        """Of every piece, in each direction."""
        self.swallowed = 0
        """Bytes."""
        self._start(self._accept)

    def swallow(self, *directions: Direction) -> None:
        """Lose what goes in these directions from now on; in none without arguments."""
        self._swallowing = frozenset(directions)

    def cut(self) -> None:
        """End all connections; new ones may be made."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            _end(each)

    def close(self) -> None:
        _end(self._listening)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((HOST, self._target_port))
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            self._start(self._pump, client, server, "to-server")
            self._start(self._pump, server, client, "to-client")

    def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if direction in self._swallowing:
                    self.swallowed += len(data)
                    continue
                if self.delay_s:
                    time.sleep(self.delay_s)
                target.sendall(data)
        _end(source)
        _end(target)

    def _start(self, function: object, *args: object) -> None:
        threading.Thread(target=function, args=args, daemon=True).start()  # type: ignore[arg-type]


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
