"""Endpoint strings such as ``tcp://*:5555``."""

from __future__ import annotations

import errno
from typing import NamedTuple

import zmq

from sim.guest.facades.proxy import unsupported
from sim.guest.facades.zmq.errors import zmq_error
from sim.kernel import Kernel

_OTHER_TRANSPORTS = ("udp", "pgm", "epgm", "norm", "tipc", "vmci", "ws", "wss")
_MAX_PORT = 65_535


class Address(NamedTuple):
    """``port`` of tcp; ``host`` holds the path or name of the others."""

    transport: str
    host: str
    port: int


def parse(kernel: Kernel, text: str, *, to_bind: bool) -> Address:
    """Split an endpoint string, or raise the ZMQError that libzmq answers it with."""
    transport, separator, rest = text.partition("://")
    if not separator or not rest:
        raise zmq_error(errno.EINVAL)
    if transport in ("inproc", "ipc"):
        return Address(transport, rest, 0)
    if transport == "tcp":
        return _parse_tcp(kernel, rest, to_bind)
    if transport in _OTHER_TRANSPORTS:
        raise unsupported(kernel, f"the transport {transport}://")
    raise zmq_error(errno.EPROTONOSUPPORT)


def _parse_tcp(kernel: Kernel, rest: str, to_bind: bool) -> Address:
    if ";" in rest:
        raise unsupported(kernel, f"a source address ({rest!r})")
    host, separator, port_text = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or (host == "*" and not to_bind):
        raise zmq_error(zmq.EINVAL)
    if port_text == "*" and to_bind:
        return Address("tcp", host, 0)
    if not port_text.isdecimal() or int(port_text) > _MAX_PORT:
        raise zmq_error(zmq.EINVAL)
    return Address("tcp", host, int(port_text))
