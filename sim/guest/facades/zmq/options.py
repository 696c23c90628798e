"""Socket options: defaults, limits and which of them have an effect.

Options that tune a real TCP stack are accepted and remembered, without effect. Options that
would change behaviour and are not listed are refused as unsupported, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import zmq

from sim.guest.facades.proxy import unsupported
from sim.guest.facades.zmq.errors import zmq_error
from sim.kernel import Kernel

_NO_LIMIT = -1
_MAX_ROUTING_ID = 255


@dataclass(frozen=True)
class _IntOption:
    default: int
    minimum: int
    socket_types: tuple[int, ...] = ()
    readable: bool = True


_INT_OPTIONS: dict[int, _IntOption] = {
    zmq.LINGER: _IntOption(_NO_LIMIT, -1),
    zmq.SNDHWM: _IntOption(1000, 0),
    zmq.RCVHWM: _IntOption(1000, 0),
    zmq.SNDTIMEO: _IntOption(_NO_LIMIT, -1),
    zmq.RCVTIMEO: _IntOption(_NO_LIMIT, -1),
    zmq.IMMEDIATE: _IntOption(0, 0),
    zmq.RECONNECT_IVL: _IntOption(100, -1),
    zmq.MAXMSGSIZE: _IntOption(_NO_LIMIT, -(2**63)),  # longer messages are not simulated
    zmq.ROUTER_MANDATORY: _IntOption(0, 0, (zmq.ROUTER,), readable=False),
    zmq.ROUTER_HANDOVER: _IntOption(0, 0, (zmq.ROUTER,), readable=False),
    # Without effect here:
    zmq.IPV6: _IntOption(0, 0),
    zmq.SNDBUF: _IntOption(-1, -1),
    zmq.RCVBUF: _IntOption(-1, -1),
    zmq.BACKLOG: _IntOption(100, 0),
    zmq.AFFINITY: _IntOption(0, 0),
    zmq.TOS: _IntOption(0, 0),
    zmq.TCP_KEEPALIVE: _IntOption(-1, -1),
    zmq.TCP_KEEPALIVE_IDLE: _IntOption(-1, -1),
    zmq.TCP_KEEPALIVE_CNT: _IntOption(-1, -1),
    zmq.TCP_KEEPALIVE_INTVL: _IntOption(-1, -1),
    zmq.TCP_MAXRT: _IntOption(0, 0),
}


class Options:
    """The options of one socket."""

    def __init__(self, kernel: Kernel, socket_type: int) -> None:
        self._kernel = kernel
        self._type = socket_type
        self._values = {option: spec.default for option, spec in _INT_OPTIONS.items()}
        self.routing_id = b""

    def number(self, option: int) -> int:
        """Value of an integer option, for the facade's own use."""
        return self._values[option]

    def set(self, option: int, value: Any) -> None:
        """Set an option as ``zmq_setsockopt`` does, or raise what pyzmq raises."""
        if option == zmq.ROUTING_ID:
            self._set_routing_id(value)
            return
        spec = self._spec(option)
        if not isinstance(value, int):
            raise TypeError(f"expected int, got: {value!r}")
        if value < spec.minimum or (spec.socket_types and self._type not in spec.socket_types):
            raise zmq_error(zmq.EINVAL)
        self._values[option] = int(value)

    def get(self, option: int) -> int | bytes:
        """Get an option as ``zmq_getsockopt`` does, or raise what pyzmq raises."""
        if option == zmq.ROUTING_ID:
            return self.routing_id
        spec = self._spec(option)
        if not spec.readable:
            raise zmq_error(zmq.EINVAL)
        return self._values[option]

    def _set_routing_id(self, value: bytes) -> None:
        if isinstance(value, str):
            raise TypeError("unicode not allowed, use setsockopt_string")
        if not isinstance(value, bytes):
            raise TypeError(f"expected bytes, got: {value!r}")
        if not 0 < len(value) <= _MAX_ROUTING_ID:
            raise zmq_error(zmq.EINVAL)
        self.routing_id = value

    def _spec(self, option: int) -> _IntOption:
        spec = _INT_OPTIONS.get(option)
        if spec is None:
            try:
                name = zmq.SocketOption(option).name
            except ValueError:
                raise zmq_error(zmq.EINVAL) from None
            raise unsupported(self._kernel, f"the socket option zmq.{name}")
        return spec
