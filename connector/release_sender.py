"""The message to producer ranks that this consumer rank is done with their blocks."""

from __future__ import annotations

from typing import Any

import zmq
from vllm.utils.network_utils import make_zmq_path

from connector.core.errors import PeerMismatch
from connector.core.ranks import holder_ranks
from connector.logs import log
from connector.metadata import Share
from connector.wire import Release, encode_release

_MOST_SOCKETS = 128  # two files each, of the 1024 that a process may have open by default


class ReleaseSender:
    """Sends releases without waiting; a lost one costs the producer its hold time-out.

    Args:
        context: for sockets, one for each of the producer ranks that were released last.
        rank: of tensor parallelism.
        tp_size: of this engine.
    """

    def __init__(self, context: zmq.Context[Any], rank: int, tp_size: int) -> None:
        self._context = context
        self._rank = rank
        self._tp_size = tp_size
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self._log = log.bind(role="consumer", half="worker", rank=rank)

    def send(self, share: Share) -> None:
        """Release every producer rank that waits for this rank."""
        address = share.address
        release = Release(share.transfer_id, self._tp_size, share.hold, self._rank)
        try:
            message = encode_release(release)
            ranks = holder_ranks(self._rank, self._tp_size, address.tp_size)
        except (PeerMismatch, ValueError) as error:  # such as half a surrogate pair in an id
            self._log.warning("not-released", transfer=share.transfer_id, reason=str(error))
            return
        for rank in ranks:
            port = address.port_of(address.notify_port, rank)
            self._send_to(make_zmq_path("tcp", address.host, port), message, share)

    def _send_to(self, path: str, message: bytes, share: Share) -> None:
        try:
            self._socket(path).send(message, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            reason = str(error)
            self._log.warning("not-released", transfer=share.transfer_id, peer=path, reason=reason)

    def _socket(self, path: str) -> zmq.Socket[bytes]:
        """Raises zmq.ZMQError: there is no such address."""
        socket = self._sockets.pop(path, None)
        if socket is None:
            self._make_room()
            socket = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            try:
                socket.connect(path)
            except zmq.ZMQError:
                socket.close()
                raise
        self._sockets[path] = socket  # behind all others
        return socket

    def _make_room(self) -> None:
        if len(self._sockets) >= _MOST_SOCKETS:
            longest_unused = next(iter(self._sockets))
            self._sockets.pop(longest_unused).close()

    def close(self) -> None:
        for socket in self._sockets.values():
            socket.close()
        self._sockets.clear()
