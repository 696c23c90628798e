"""What engines tell each other over TCP: where registered memory is. One line of JSON each way.

A connection stands for a queue pair. It lives as long as both engines do, and nothing else is said
on it, so that its end is the end of the peer.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from hw_tests.process.shared_mori.memory import Place

Tell = Callable[[int], tuple[Place, Place] | None]
"""Where a memory is, and the byte that says that it is registered; None for an unknown number."""


class ControlServer:
    """Answers peers until closed; ``port`` 0 takes any.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, tell: Tell) -> None:
        self._tell = tell
        self._connections: list[socket.socket] = []
        self._listening = socket.create_server((host, port))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True, name="mori-control").start()

    def close(self) -> None:
        for connection in (self._listening, *self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rw") as lines:
            for line in lines:
                lines.write(json.dumps(self._tell(int(line))) + "\n")
                lines.flush()


class ControlClient:
    """A connection to a peer's engine.

    Args:
        host: of the engine.
        port: likewise.
        timeout_s: for an answer.

    Raises:
        RuntimeError: nobody listens there.
    """

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise RuntimeError(f"connect({host}:{port}): {error.strerror or error}") from error

    def ask(self, memory_id: int) -> tuple[Place, Place] | None:
        """Where a memory of the peer is, and its byte of validity; None if it knows of none.

        Raises:
            RuntimeError: it does not answer.
        """
        try:
            self._socket.sendall(f"{memory_id}\n".encode())
            answer: Any = json.loads(self._receive_line())
        except OSError as error:
            raise RuntimeError(f"ReadMessageHeader(type) failed: {error}") from error
        return None if answer is None else (Place(*answer[0]), Place(*answer[1]))

    def _receive_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            part = self._socket.recv(4096)
            if not part:
                raise ConnectionResetError("the peer has closed the connection")
            line += part
        return line

    def is_gone(self) -> bool:
        """Whether the peer's process, or its engine, has ended."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        if not poller.poll(0):
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except TimeoutError:  # an answer was there, and whoever asked has taken it
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()
