"""The errors of libzmq, as pyzmq raises them."""

from __future__ import annotations

import zmq


def zmq_error(code: int) -> zmq.ZMQError:
    """The exception pyzmq raises for a libzmq error code."""
    if code == zmq.EAGAIN:
        return zmq.Again()
    if code == zmq.ETERM:
        return zmq.ContextTerminated()
    return zmq.ZMQError(code)
