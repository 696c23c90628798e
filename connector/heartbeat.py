"""Tells a proxy every few seconds that this engine is there and where, as vLLM's MoRIIO does.

A proxy that keeps no table of engines learns of them by these messages, and forgets an engine that
it has not heard of for some seconds. A thread is enough: nothing here keeps the interpreter's lock
for longer than ``control_timeout``, and the thread ends with its process, however that ends. The
proxy may be a name: its context is its own, so nobody else waits while libzmq looks it up.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import msgspec
import zmq
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import MoRIIOConstants
from vllm.utils.network_utils import make_zmq_path

from connector.core.config import Settings
from connector.core.errors import ConfigError
from connector.counters import Counters
from connector.logs import log
from connector.side_channel import open_context

_SEND_TIMEOUT_MS = 1000


@dataclass(frozen=True)
class Announcement:
    """What a proxy is told.

    Args:
        host_ip: of this engine.
        notify_port: of the rank that speaks, offset included.
        dp_size: of data parallelism, over all nodes.
        tp_size: of tensor parallelism.
    """

    host_ip: str
    notify_port: int
    dp_size: int
    tp_size: int

    def encode(self, settings: Settings) -> bytes:
        """One msgpack map, byte for byte upstream's."""
        return msgspec.msgpack.encode(
            {
                "type": "P" if settings.is_producer else "D",
                "http_address": f"{self.host_ip}:{settings.http_port}",
                "zmq_address": (
                    f"host:{self.host_ip},handshake:{settings.handshake_port},"
                    f"notify:{self.notify_port}"
                ),
                "dp_size": self.dp_size,
                "tp_size": self.tp_size,
                "transfer_mode": "READ",
            }
        )


class Heartbeat:
    """Sends one message again and again until it is closed; a proxy that is away is counted.

    A message goes to a proxy that is connected or to nobody: none waits for a proxy to come.

    Args:
        announcement: of this engine.
        settings: of this engine; its proxy must be set.
        counters: ``missed_pings`` counts messages that reached no proxy.
        interval_s: between two messages.

    Raises:
        ConfigError: the proxy's address is none.
    """

    def __init__(
        self,
        announcement: Announcement,
        settings: Settings,
        counters: Counters,
        interval_s: float = MoRIIOConstants.PING_INTERVAL,
    ) -> None:
        self._message = announcement.encode(settings)
        self._counters = counters
        self._interval_s = interval_s
        self._path = make_zmq_path("tcp", settings.proxy_ip, settings.proxy_ping_port)
        self._log = log.bind(role=settings.side, half="worker", peer=self._path)
        self._is_away = False
        self._closing = threading.Event()
        self._context = open_context()
        self._socket = self._connect(settings)
        self._thread = threading.Thread(target=self._run, daemon=True, name="hybrid-heartbeat")
        self._thread.start()

    def close(self) -> None:
        """Returns within two seconds."""
        self._closing.set()
        self._thread.join(timeout=2 * _SEND_TIMEOUT_MS / 1000)

    # ---------------------------------------------------------------- internal

    def _connect(self, settings: Settings) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.SNDHWM, 1)
        socket.setsockopt(zmq.SNDTIMEO, _SEND_TIMEOUT_MS)
        try:
            socket.connect(self._path)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ConfigError(
                f"proxy_ip is {settings.proxy_ip!r}; expected the address of a proxy: {error}"
            ) from None
        return socket

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._socket.send(self._message)
                self._reached()
            except zmq.ZMQError as error:
                self._missed(str(error))
            self._closing.wait(self._interval_s)
        self._context.destroy(linger=0)  # waits for as long as the proxy's name is looked up

    def _reached(self) -> None:
        if self._is_away:
            self._log.info("proxy-reached")
        self._is_away = False

    def _missed(self, reason: str) -> None:
        self._counters.add("missed_pings")
        if not self._is_away:
            self._log.warning("proxy-away", reason=reason, interval_s=self._interval_s)
        self._is_away = True
