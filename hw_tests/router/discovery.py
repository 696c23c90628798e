"""Hears engines announce themselves, as MoRIIO and ``HybridReadConnector`` do every 3 seconds.

A message is one msgpack map on a ZeroMQ ROUTER socket: ``type`` ("P" or "D"), ``http_address``,
``transfer_mode``, and for routers that make transfer parameters themselves ``zmq_address``,
``dp_size`` and ``tp_size``. In READ mode the prefill engine's answer holds all that, so only the
first three are used.
"""

from __future__ import annotations

import logging
from typing import Literal

import msgspec
import zmq
import zmq.asyncio

from hw_tests.router.engines import Engines

_log = logging.getLogger(__name__)


class Announcement(msgspec.Struct):
    """What is read of a message; other keys are ignored."""

    type: Literal["P", "D"]
    http_address: str
    transfer_mode: Literal["READ", "WRITE"] = "READ"


class Discovery:
    """Listens from its construction on, on all interfaces.

    Args:
        port: that engines know as ``proxy_ping_port``; 0 for any.
        prefill, decode: who is told of engines.

    Raises:
        zmq.ZMQError: the port cannot be had.
    """

    def __init__(self, port: int, prefill: Engines, decode: Engines) -> None:
        self._engines = {"P": prefill, "D": decode}
        self._refused: set[str] = set()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        try:
            self._socket.bind(f"tcp://*:{port}")
        except zmq.ZMQError:
            self.close()
            raise
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            _identity, *frames = await self._socket.recv_multipart()
            self.hear(frames[-1] if frames else b"")

    def hear(self, message: bytes) -> None:
        """One message; what is none is logged and dropped."""
        try:
            said = msgspec.msgpack.decode(message, type=Announcement)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            _log.warning("not an engine's announcement, dropped: %s: %.80r", error, message)
            return
        url = f"http://{said.http_address}"
        if said.transfer_mode == "WRITE":
            self._refuse(url)
        elif self._engines[said.type].announce(url):
            _log.info("%s engine %s is there", self._engines[said.type].kind, url)

    def _refuse(self, url: str) -> None:
        if url not in self._refused:
            self._refused.add(url)
            _log.error("%s is in WRITE mode, and this router hands over by READ; ignored", url)

    def close(self) -> None:
        self._context.destroy(linger=0)
