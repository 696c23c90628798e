"""The router's own process, and engines that announce themselves to it as real ones do."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator

import aiohttp
import msgspec
import pytest
import zmq
from fake_engines import FakeEngine
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_heartbeat import MoRIIOHeartbeat

from connector.core.config import parse_settings
from connector.counters import Counters
from connector.heartbeat import Announcement, Heartbeat
from hw_tests.router.__main__ import main
from hw_tests.router.discovery import Discovery
from hw_tests.router.engines import Engines

PATIENCE_S = 60
HOST = "127.0.0.1"


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """Where a router in a process of its own serves, and where it hears engines."""
    port, ping_port = free_port(), free_port()
    command = [sys.executable, "-m", "hw_tests.router", "--host", HOST]
    router = subprocess.Popen([*command, "--port", str(port), "--ping-port", str(ping_port)])
    yield port, ping_port
    router.terminate()
    assert router.wait(PATIENCE_S) == 0


def port_of(engine: FakeEngine) -> int:
    return int(engine.url.rpartition(":")[2])


async def health_of(client: aiohttp.ClientSession, url: str) -> tuple[int, dict[str, object]]:
    try:
        async with client.get(f"{url}/health") as answer:
            return answer.status, await answer.json()
    except aiohttp.ClientConnectorError:  # it is still starting
        return 0, {}


async def serve_announced_engines(url: str, prefill: FakeEngine, decode: FakeEngine) -> None:
    """Both are there at last, a request is answered, and a client that leaves ends its leg."""
    async with aiohttp.ClientSession() as client:
        while (health := await health_of(client, url))[0] != 200:
            await asyncio.sleep(0.05)
        assert health[1] == {"prefill": {prefill.url: "ok"}, "decode": {decode.url: "ok"}}
        async with client.post(f"{url}/v1/completions", json={"prompt": "p"}) as answer:
            assert answer.status == 200
        assert decode.received[0]["kv_transfer_params"] == prefill.params
        decode.gate.clear()
        async with client.post(f"{url}/v1/completions", json={"prompt": "p", "stream": True}):
            pass
        await decode.aborted.wait()


def test_engines_of_either_connector_announce_themselves_and_are_used(
    ports: tuple[int, int],
) -> None:
    """vLLM's own MoRIIO as the producer, this project's connector as the consumer."""
    port, ping_port = ports

    async def test() -> None:
        async with FakeEngine().running() as prefill, FakeEngine().running() as decode:
            said = {"type": "P", "http_address": f"{HOST}:{port_of(prefill)}"}
            said |= {"zmq_address": f"host:{HOST},handshake:6301,notify:61005"}
            sizes = {"dp_size": 1, "tp_size": 8, "transfer_mode": "READ"}
            upstreams = MoRIIOHeartbeat(f"tcp://{HOST}:{ping_port}", said | sizes, 0.05)
            addresses = {"proxy_ip": HOST, "proxy_ping_port": ping_port}
            settings = parse_settings(
                {"handshake_port": 1, "notify_port": 2, "http_port": port_of(decode), **addresses},
                role="kv_consumer",
            )
            ours = Heartbeat(Announcement(HOST, 61005, 1, 8), settings, Counters(), 0.05)
            try:
                url = f"http://{HOST}:{port}"
                test = serve_announced_engines(url, prefill, decode)
                await asyncio.wait_for(test, PATIENCE_S)
            finally:
                ours.close()
                upstreams.shutdown()

    asyncio.run(test())


def test_what_is_no_announcement_is_dropped_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """Garbage and other types of engines; the next engine is heard."""
    prefill, decode = Engines("prefill"), Engines("decode")
    discovery = Discovery(0, prefill, decode)
    with caplog.at_level("INFO"):
        for message in (b"", b"\xc1", b"hello", msgspec.msgpack.encode({"type": "X"})):
            discovery.hear(message)
        assert caplog.text.count("not an engine's announcement") == 4
        discovery.hear(msgspec.msgpack.encode({"type": "D", "http_address": "10.0.0.2:8000"}))
    discovery.close()
    assert (prefill.urls(), decode.urls()) == ([], ["http://10.0.0.2:8000"])
    assert "decode engine http://10.0.0.2:8000 is there" in caplog.text


def test_an_engine_that_writes_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """In WRITE mode both legs are sent at once, which this router does not do; told once."""
    prefill = Engines("prefill")
    discovery = Discovery(0, prefill, Engines("decode"))
    said = {"type": "P", "http_address": "10.0.0.1:8000", "transfer_mode": "WRITE"}
    for _ in range(2):
        discovery.hear(msgspec.msgpack.encode(said))
    discovery.close()
    assert prefill.urls() == []
    assert caplog.text.count("is in WRITE mode") == 1


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """For clients and for engines alike; exit code 2."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as taken:
        port = str(taken.bind_to_random_port(f"tcp://{HOST}"))
        engines = ["--prefill", "http://a", "--decode", "http://b", "--host", HOST]
        for ports in (["--port", port], ["--port", "1", "--ping-port", port]):
            with pytest.raises(SystemExit) as ended:
                main([*engines, *ports])
            assert ended.value.code == 2
            assert f"port {port}: " in capsys.readouterr().err
