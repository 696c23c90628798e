"""What a proxy hears of the engines of a run, and what becomes of a run without it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from sim.kernel import Process
from sim.run import TestBed, run
from sim.scenario import Scenario, UniformWorkload, with_settings
from sim.units import SECOND

PORT = 36367
WORKLOAD = UniformWorkload(
    requests=4, prompt_tokens=(60, 90), output_tokens=(3, 3), interval_ms=4000.0
)


class Proxy:
    """A node that listens to engines as a proxy does, from ``begin_s`` on."""

    def __init__(self, begin_s: int = 0) -> None:
        self.heard: list[tuple[float, bytes]] = []
        self._begin_s = begin_s

    def __call__(self, bed: TestBed) -> None:
        node = bed.world.add_node("proxy")
        assert node.ip == "10.0.0.3"
        self._kernel = bed.kernel
        bed.kernel.spawn(
            Process(node, "proxy"), self._listen, bed.world.facades["zmq"], name="main"
        )

    def _listen(self, zmq: Any) -> None:
        self._kernel.sleep(self._begin_s * SECOND)
        socket = zmq.Context().socket(zmq.ROUTER)
        socket.bind(f"tcp://*:{PORT}")
        while True:
            _identity, message = socket.recv_multipart()
            self.heard.append((self._kernel.now_ns / SECOND, message))

    def messages(self) -> list[bytes]:
        """One of each, in the order in which they came first."""
        return list(dict.fromkeys(message for _, message in self.heard))


def scenario(connector: str, **settings: str) -> Scenario:
    extra = f"{{proxy_ip: 10.0.0.3, proxy_ping_port: {PORT}, http_port: 8123}}"
    given = {"connector": connector, "extra_config": extra, **settings}
    return with_settings(Scenario(workload=WORKLOAD), given)


@pytest.mark.parametrize("ranks", [{}, {"tp_size": "2", "executor": "multi-process"}])
def test_the_proxy_hears_what_it_hears_from_upstream(ranks: dict[str, str]) -> None:
    """Byte for byte, one sender an engine, however many ranks it has."""
    ours, theirs = Proxy(), Proxy()
    for proxy, connector in ((ours, "hybrid"), (theirs, "moriio")):
        assert run(scenario(connector, **ranks), prepare=proxy).outcome.verdict == "pass"
    assert sorted(ours.messages()) == sorted(theirs.messages())
    kinds = sorted(msgspec.msgpack.decode(message)["type"] for message in ours.messages())
    assert kinds == ["D", "P"]


def test_the_proxy_hears_from_each_engine_every_three_seconds() -> None:
    """As often as upstream's speaks, which is what proxies' patience is made for."""
    proxy = Proxy()
    run(scenario("hybrid"), prepare=proxy)
    for message in proxy.messages():
        times = [time for time, heard in proxy.heard if heard == message]
        assert len(times) >= 4
        assert all(2.9 < b - a < 3.1 for a, b in pairwise(times))


@pytest.mark.parametrize("connector", ["hybrid", "moriio"])
def test_requests_are_served_without_the_proxy(connector: str) -> None:
    """Nobody listens at its address."""
    assert run(scenario(connector)).outcome.verdict == "pass"


@contextmanager
def connector_events() -> Iterator[list[dict[str, Any]]]:
    """What connectors log meanwhile."""
    events: list[dict[str, Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: events.append(json.loads(record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.hybrid_read")
    logger.addHandler(handler)
    try:
        yield events
    finally:
        logger.removeHandler(handler)


def test_a_proxy_that_is_away_is_said_once_and_told_nothing_old() -> None:
    """It comes after nine seconds and hears the present only; each engine says once that it is
    away, however many messages do not reach it."""
    run(scenario("hybrid"))  # the first run of a kind rehearses, and would say it, too
    proxy = Proxy(begin_s=9)
    with connector_events() as events:
        assert run(scenario("hybrid"), prepare=proxy).outcome.verdict == "pass"
    assert len(proxy.messages()) == 2
    assert len([time for time, _ in proxy.heard if time < 11.5]) <= 2
    away = [event["role"] for event in events if event["event"] == "proxy-away"]
    assert sorted(away) == ["consumer", "producer"]


def test_the_heartbeat_ends_with_its_engine() -> None:
    """An engine that crashes is silent from then on, and is heard again after its restart."""
    proxy = Proxy()

    def prepare(bed: TestBed) -> None:
        proxy(bed)
        bed.kernel.call_later(5 * SECOND, bed.engine("d0").crash)

    run(scenario("hybrid"), prepare=prepare)
    spoken = [time for time, m in proxy.heard if msgspec.msgpack.decode(m)["type"] == "D"]
    assert any(time < 5 for time in spoken)
    assert not any(5.1 < time < 12 for time in spoken)
    assert any(time > 12 for time in spoken)
