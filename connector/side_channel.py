"""Contexts for the sockets of the side channel, whose connections end with the other machine, and
with a message that is longer than any of ours.

A machine that loses its power or its network closes nothing. Without these options the operating
system would keep what is connected to it: for ever if nothing is to be sent there, and for a
quarter of an hour if something is.
"""

from __future__ import annotations

import zmq

_END_OF_THE_SILENT = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 30,  # seconds of silence before the first probe
    zmq.TCP_KEEPALIVE_INTVL: 10,  # between probes
    zmq.TCP_KEEPALIVE_CNT: 3,  # probes without an answer
    zmq.TCP_MAXRT: 60_000,  # milliseconds without an acknowledgement of what was sent
}
_LONGEST_MESSAGE = 2**24  # bytes; libzmq takes in the whole of one before anybody sees it


def open_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context whose sockets lose their connection to a machine that has been silent for a minute,
    or that sends a message of more than 16 MiB.

    libzmq connects again by itself for as long as the socket is open.
    """
    context = zmq.Context()
    for option, value in _END_OF_THE_SILENT.items():
        context.setsockopt(option, value)
    context.setsockopt(zmq.MAXMSGSIZE, _LONGEST_MESSAGE)
    return context
