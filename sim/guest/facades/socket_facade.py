"""``socket`` as far as a guest asks it where it is and which ports are free.

vLLM finds its address by "connecting" a datagram socket and its ports by binding and closing
one. Both are answered with facts of the simulated node. Data is never carried: guests talk
through zmq, and everything else here is refused.
"""

from __future__ import annotations

import errno
import os
import socket
from types import ModuleType
from typing import Any, ClassVar

from sim.guest.facades.proxy import Facade, unsupported
from sim.kernel import Kernel, Node
from sim.network import Network

_EXCEPTIONS = ("error", "gaierror", "herror", "timeout")
_CONSTANTS = (
    "AF_INET", "AF_INET6", "AF_UNIX", "SOCK_STREAM", "SOCK_DGRAM", "SOL_SOCKET", "SO_REUSEADDR",
    "SO_REUSEPORT", "SO_RCVBUF", "SO_SNDBUF", "SO_KEEPALIVE", "IPPROTO_TCP", "TCP_NODELAY",
    "INADDR_ANY", "AddressFamily", "SocketKind", "has_ipv6",
)  # fmt: skip
_NO_ADDRESS = ("0.0.0.0", 0)


class NodeSocket:
    """``socket.socket`` that can bind, look up its own name, and close."""

    _kernel: ClassVar[Kernel]
    _network: ClassVar[Network]

    def __init__(
        self, family: int = socket.AF_INET, type: int = socket.SOCK_STREAM, proto: int = 0
    ) -> None:
        self._kernel.checkpoint()
        if family != socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        self._node: Node = self._kernel.require_task("making a socket").process.node
        self._is_stream = type == socket.SOCK_STREAM
        self._name = _NO_ADDRESS

    def __enter__(self) -> NodeSocket:
        return self

    def __exit__(self, *_args: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unsupported(self._kernel, f"socket.socket.{name}")

    def setsockopt(self, *_args: Any) -> None:
        """Options tune what does not exist here."""
        self._kernel.checkpoint()

    def bind(self, address: tuple[str, int]) -> None:
        """Check that the address is free; it is not held, as nobody can be answered on it."""
        self._kernel.checkpoint()
        host, port = address
        directory = self._network.directory
        directory.add_node(self._node)
        local_host = directory.local_host(self._node, host)
        if port == 0:
            port = directory.allocate_port(self._node)
        elif self._is_stream and not directory.port_free(self._node, local_host, port):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._name = (local_host, port)

    def connect(self, address: tuple[str, int]) -> None:
        """Datagram sockets learn which of the node's addresses would be used."""
        self._kernel.checkpoint()
        if self._is_stream:
            raise unsupported(self._kernel, f"connecting a socket to {address!r}")
        port = self._network.directory.connecting_port(self._node)
        self._name = (self._node.ip, port)

    def getsockname(self) -> tuple[str, int]:
        """Own address and port."""
        self._kernel.checkpoint()
        return self._name

    def close(self) -> None:
        """Nothing is held."""
        self._kernel.checkpoint()


def make(kernel: Kernel, network: Network) -> ModuleType:
    """The facade of ``socket`` for all processes of one run."""
    socket_class = type("socket", (NodeSocket,), {"_kernel": kernel, "_network": network})

    def here() -> Node:
        kernel.checkpoint()
        return kernel.require_task("asking for the own host").process.node

    def gethostname() -> str:
        return here().name

    def getfqdn(name: str = "") -> str:
        return name or here().name

    def gethostbyname(hostname: str) -> str:
        node = network.directory.resolve(here(), hostname)
        if node is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return node.ip

    members = {name: getattr(socket, name) for name in (*_EXCEPTIONS, *_CONSTANTS)}
    members |= {
        "socket": socket_class,
        "SocketType": socket_class,
        "gethostname": gethostname,
        "getfqdn": getfqdn,
        "gethostbyname": gethostbyname,
    }
    return Facade(kernel, "socket", members)
