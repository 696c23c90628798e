"""Whether two URLs lead to one server, however its host is spelled, and whether one is taken."""

from __future__ import annotations

import socket
from collections.abc import Set
from urllib.parse import urlsplit

from hw_tests.child import ChildFailed

_CONNECT_S = 5.0
_PORTS = {"http": 80, "https": 443}


def same_server(one: str, other: str) -> bool:
    """As far as names and ports tell: another address of the same host is another server."""
    return one == other or bool(_endpoints(one) & _endpoints(other))


def _endpoints(url: str) -> Set[tuple[str, int]]:
    """Addresses and port; none of a host that is not known."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, LookupError):
        return frozenset()
    return {(str(address[0]), port) for *_, address in found}


def refuse_taken(name: str, url: str) -> None:
    """Before the server ``name`` is started: what answers there already would be taken for it.

    Raises:
        ChildFailed: something accepts connections at ``url``.
    """
    for where in _endpoints(url):
        try:
            socket.create_connection(where, timeout=_CONNECT_S).close()
        except OSError:
            continue
        raise ChildFailed(
            f"{name}: something serves at {url} already, and would be taken for it; end that, or "
            "name another port"
        )
