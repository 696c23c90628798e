"""A connection for hosts that neither ssh nor Slurm reaches: a person starts the far side.

``listen PORT TOKEN`` stands for the far side on the machine of the tests, as the ssh command does;
``call HOST:PORT TOKEN -- COMMAND`` runs COMMAND on the other with the connection as its standard
input and output. Whoever does not know the token is sent away. Nothing is encrypted: for networks
whose users trust each other.
"""

from __future__ import annotations

import argparse
import contextlib
import hmac
import os
import socket
import sys
import threading
from collections.abc import Sequence

from hw_tests.child import die_with_parent
from hw_tests.option_types import address, parsed, port

_TOKEN_WITHIN_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hw_tests.cluster.by_hand")
    parts = parser.add_subparsers(dest="what", required=True)
    listen, call = parts.add_parser("listen"), parts.add_parser("call")
    listen.add_argument("port", type=port)
    listen.add_argument("token")
    call.add_argument("where", type=address, metavar="HOST:PORT")
    call.add_argument("token")
    call.add_argument("command", nargs="+")
    options = parsed(parser, arguments)
    if options.what == "listen":
        return _listen(options.port, options.token.encode())
    return _call(options.where, options.token.encode(), options.command)


def _listen(number: int, token: bytes) -> int:
    die_with_parent()  # it may be gone before anybody has called
    try:
        listener = socket.create_server(("", number))
    except OSError as error:
        print(f"port {number}: {error.strerror}; name one that is free", file=sys.stderr)
        return 2
    with listener:
        connection = _first_that_knows(listener, token)
    threading.Thread(target=_pass_on_input, args=(connection,), daemon=True).start()
    with contextlib.suppress(OSError):  # the far side has gone
        while data := connection.recv(65536):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    return 0


def _first_that_knows(listener: socket.socket, token: bytes) -> socket.socket:
    while True:
        connection, _ = listener.accept()
        connection.settimeout(_TOKEN_WITHIN_S)
        with contextlib.suppress(OSError):
            if hmac.compare_digest(_receive(connection, len(token) + 1), token + b"\n"):
                connection.settimeout(None)
                return connection
        connection.close()


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (data := connection.recv(size - len(received))):
        received += data
    return received


def _pass_on_input(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 65536):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _call(where: str, token: bytes, command: Sequence[str]) -> int:
    host, _, port = where.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)))
    except OSError as error:
        print(f"{where}: {error}; needed HOST:PORT, on which the tests wait", file=sys.stderr)
        return 2
    connection.sendall(token + b"\n")
    for number in (0, 1):
        os.dup2(connection.fileno(), number)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        print(f"{command[0]}: {error.strerror}; needed a command of this host", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
