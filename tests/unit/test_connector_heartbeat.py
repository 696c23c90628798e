"""The heartbeat over real sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

from connector.core.config import Settings, parse_settings
from connector.core.errors import ConfigError
from connector.counters import Counters
from connector.heartbeat import Announcement, Heartbeat

ANNOUNCEMENT = Announcement("10.0.0.1", 61007, dp_size=2, tp_size=4)
NEVER_S = 3600.0
PATIENCE_MS = 20_000


def settings_with_proxy(port: int, ip: str = "127.0.0.1") -> Settings:
    proxy = {"proxy_ip": ip, "proxy_ping_port": port, "http_port": "8123"}
    ports = {"handshake_port": 6301, "notify_port": 61005}
    return parse_settings({**ports, **proxy}, role="kv_consumer")


@pytest.fixture
def proxy() -> Iterator[tuple[Any, int]]:
    """A socket as a proxy has it, and its port."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger, socket.rcvtimeo = 0, PATIENCE_MS
        yield socket, socket.bind_to_random_port("tcp://127.0.0.1")


def test_a_proxy_receives_upstreams_message_at_once(proxy: tuple[Any, int]) -> None:
    """All that upstream's proxies read, in one frame, before the first interval is over."""
    socket, port = proxy
    counters = Counters()
    heartbeat = Heartbeat(ANNOUNCEMENT, settings_with_proxy(port), counters, NEVER_S)
    _identity, *frames = socket.recv_multipart()
    heartbeat.close()
    assert [msgspec.msgpack.decode(frame) for frame in frames] == [
        {
            "type": "D",
            "http_address": "10.0.0.1:8123",
            "zmq_address": "host:10.0.0.1,handshake:6301,notify:61007",
            "dp_size": 2,
            "tp_size": 4,
            "transfer_mode": "READ",
        }
    ]
    assert counters.take() == {}


def test_it_speaks_again_after_each_interval(proxy: tuple[Any, int]) -> None:
    """The same each time."""
    socket, port = proxy
    heartbeat = Heartbeat(ANNOUNCEMENT, settings_with_proxy(port), Counters(), 0.01)
    assert len({socket.recv_multipart()[1] for _ in range(3)}) == 1
    heartbeat.close()


def test_messages_without_a_proxy_are_counted_and_close_is_prompt(
    proxy: tuple[Any, int],
) -> None:
    """Nobody listens; the thread is gone when close returns."""
    socket, port = proxy
    socket.unbind(socket.last_endpoint)
    missed = threading.Event()

    class Noted(Counters):
        def add(self, name: str, amount: int = 1) -> None:
            super().add(name, amount)
            missed.set()

    counters = Noted()
    before = threading.active_count()
    heartbeat = Heartbeat(ANNOUNCEMENT, settings_with_proxy(port), counters, NEVER_S)
    assert missed.wait(PATIENCE_MS / 1000)
    heartbeat.close()
    assert counters.take() == {"missed_pings": 1}
    assert threading.active_count() == before


def test_close_waits_for_no_name_to_be_looked_up(
    proxy: tuple[Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the end of libzmq's context does, for as long as the resolver's time-outs are."""
    looked_up = threading.Event()

    class SlowContext(zmq.Context[Any]):
        def destroy(self, linger: int | None = None) -> None:
            looked_up.wait(PATIENCE_MS / 1000)
            super().destroy(linger)

    monkeypatch.setattr("connector.heartbeat.open_context", SlowContext)
    monkeypatch.setattr("connector.heartbeat._SEND_TIMEOUT_MS", 50)
    heartbeat = Heartbeat(ANNOUNCEMENT, settings_with_proxy(proxy[1]), Counters(), NEVER_S)
    heartbeat.close()
    assert heartbeat._thread.is_alive()
    looked_up.set()
    heartbeat._thread.join(PATIENCE_MS / 1000)
    assert heartbeat._context.closed


def test_an_address_that_is_none_is_refused() -> None:
    """Naming the key and its value."""
    with pytest.raises(ConfigError, match="proxy_ip is 'not an address'; expected"):
        Heartbeat(ANNOUNCEMENT, settings_with_proxy(36367, "not an address"), Counters())
