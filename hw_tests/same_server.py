"""Whether two URLs lead to one server, however its host is spelled, and whether one is taken."""

from __future__ import annotations

import socket
from argparse import ArgumentTypeError
from collections.abc import Set
from urllib.parse import urlsplit

from hw_tests import option_types
from hw_tests.child import ChildFailed

_CONNECT_S = 5.0
_PORTS = {"http": 80, "https": 443}


def same_server(one: str, other: str) -> bool:
    """As far as names and ports tell: another address of the same host is another server."""
    return one == other or bool(_known_endpoints(one) & _known_endpoints(other))


def _known_endpoints(url: str) -> Set[tuple[str, int]]:
    """None of what is no URL, or of a host that is not known."""
    try:
        return _endpoints(url)
    except (ArgumentTypeError, OSError):
        return frozenset()


def _endpoints(url: str) -> Set[tuple[str, int]]:
    """Addresses and port.

    Raises:
        ArgumentTypeError: it is no URL.
        OSError: its host is not known.
    """
    parts = urlsplit(option_types.url(url))
    port = parts.port or _PORTS[parts.scheme]
    found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    return {(str(address[0]), port) for *_, address in found}


def refuse_taken(name: str, url: str) -> None:
    """Before the server ``name`` is started: what answers there already would be taken for it.

    Raises:
        ChildFailed: something accepts connections at ``url``, or nothing ever could.
    """
    try:
        endpoints = _endpoints(url)
    except ArgumentTypeError as error:
        raise ChildFailed(f"{name}: {error}") from None
    except OSError as error:
        raise ChildFailed(
            f"{name}: {url!r}: {error.strerror}; expected a host that is known where the server "
            "runs: name its address, such as http://10.0.0.1:8000"
        ) from None
    for where in endpoints:
        try:
            socket.create_connection(where, timeout=_CONNECT_S).close()
        except OSError:
            continue
        raise ChildFailed(
            f"{name}: something serves at {url} already, and would be taken for it; end that, or "
            "name another port"
        )
