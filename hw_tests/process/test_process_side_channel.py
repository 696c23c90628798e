"""Messages between two engines that are lost, late, foreign or garbage."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from hw_tests.process.checks import (
    EACH_MODE,
    check_failed,
    check_loaded,
    check_served,
    check_serves,
    wait_for_read,
)
from hw_tests.process.launcher import until
from hw_tests.process.pair import LEASE_S, EngineProcess, Engines, Prefilled, decode, prefill
from hw_tests.process.tcp_proxy import TcpProxy

GARBAGE = [
    b"",
    b"\x00" * 70_000,
    b"\xc1\xff not msgpack",
    msgspec.msgpack.encode({"type": "release"}),
    msgspec.msgpack.encode({"type": "release", "transfer_id": 7}),
    msgspec.msgpack.encode({"type": "release", "transfer_id": "x", "consumer_tp_size": -1}),
    msgspec.msgpack.encode({"type": "hybrid", "version": 1, "renew": "all", "incarnation": "x"}),
    msgspec.msgpack.encode({"type": "hybrid", "version": 99, "ask": 1}),
]
NOT_ZMQ = b"GET / HTTP/1.1\r\nHost: producer\r\n\r\n"


class Proxied(NamedTuple):
    """A producer behind one proxy for handshakes and questions, and one for releases."""

    producer: EngineProcess
    questions: TcpProxy
    releases: TcpProxy

    def decode(self, consumer: EngineProcess, prefilled: Prefilled) -> str:
        ports = {
            "remote_handshake_port": self.questions.port,
            "remote_notify_port": self.releases.port,
        }
        return decode(consumer, prefilled, **ports)


@pytest.fixture
def proxied(engines: Engines, proxies: None) -> Iterator[Proxied]:
    """A producer whose leases end soon when nobody renews them."""
    producer = engines.producer(defer_timeout=LEASE_S)
    ends = [TcpProxy(port) for port in producer.ports]
    yield Proxied(producer, *ends)
    for proxy in ends:
        proxy.close()


@pytest.mark.requirement("S6")
def test_late_messages_change_nothing(proxied: Proxied, engines: Engines) -> None:
    """An answer that comes before its time-out is as good as an early one."""
    patient = engines.consumer(transfer_timeout=60.0)
    proxied.questions.delay_s = proxied.releases.delay_s = 0.01
    prefilled = prefill(proxied.producer)
    request_id = proxied.decode(patient, prefilled)
    check_served(patient, request_id)
    check_loaded(proxied.producer, prefilled, patient, request_id)
    proxied.producer.wait_until_idle()


@pytest.mark.requirement("S6")
@EACH_MODE
def test_messages_that_are_later_than_their_time_out_cost_the_request(
    proxied: Proxied, consumer: EngineProcess
) -> None:
    """Each attempt is given up and made again, until the load's own time is over."""
    proxied.questions.delay_s = 0.5
    request_id = proxied.decode(consumer, prefill(proxied.producer))
    check_failed(consumer, request_id, "no-answer")
    proxied.producer.wait_until_idle()
    check_serves(proxied.producer, consumer)


@pytest.mark.requirement("R16", "R17", "S6")
@EACH_MODE
def test_a_handshake_without_an_answer_costs_its_request(
    proxied: Proxied, consumer: EngineProcess
) -> None:
    """The release still arrives, so the producer waits for no lease."""
    proxied.questions.swallow("to-client")
    request_id = proxied.decode(consumer, prefill(proxied.producer))
    check_failed(consumer, request_id, "no-answer")
    proxied.producer.wait_until_idle()
    check_serves(proxied.producer, consumer)


@pytest.mark.requirement("S3")
@pytest.mark.usefixtures("held_reads")
def test_bytes_that_nobody_confirms_are_not_used(proxied: Proxied, consumer: EngineProcess) -> None:
    """The reads succeed, and the answer about the hold is lost, again and again."""
    request_id = proxied.decode(consumer, prefill(proxied.producer))
    wait_for_read(consumer)
    proxied.questions.swallow("to-client")
    consumer.call("set_gate", is_open=True)
    check_failed(consumer, request_id, "not-confirmed")
    proxied.producer.wait_until_idle()
    check_serves(proxied.producer, consumer)


@pytest.mark.requirement("S3")
@pytest.mark.usefixtures("held_reads", "proxies")
def test_a_question_that_was_lost_is_asked_again(engines: Engines) -> None:
    """A cut connection costs no load."""
    patient = engines.consumer(transfer_timeout=60.0)
    producer = engines.producer()
    proxy = TcpProxy(producer.ports[0])
    patient.call("set_gate", is_open=False)
    prefilled = prefill(producer)
    request_id = decode(patient, prefilled, remote_handshake_port=proxy.port)
    wait_for_read(patient)
    proxy.swallow("to-server", "to-client")
    patient.call("set_gate", is_open=True)
    until(lambda: proxy.swallowed, "a question is lost")
    proxy.swallow()
    proxy.cut()
    check_served(patient, request_id)
    check_loaded(producer, prefilled, patient, request_id)
    producer.wait_until_idle()
    proxy.close()


@pytest.mark.requirement("R17", "S1")
def test_blocks_whose_release_is_lost_come_back_with_the_lease(
    proxied: Proxied, consumer: EngineProcess
) -> None:
    """The request is served all the same."""
    proxied.releases.swallow("to-server")
    prefilled = prefill(proxied.producer)
    request_id = proxied.decode(consumer, prefilled)
    check_served(consumer, request_id)
    proxied.producer.wait_until_idle()
    ended = [event["request"] for event in proxied.producer.events("hold-expired")]
    assert prefilled.request_id in ended


@pytest.mark.requirement("R17")
@EACH_MODE
@pytest.mark.parametrize("which", [0, 1], ids=["handshake", "notify"])
def test_garbage_is_counted_and_dropped(
    engines: Engines, consumer: EngineProcess, which: int
) -> None:
    """It ends no thread and no hold; what is not ZeroMQ does not get as far."""
    producer = engines.producer()
    held = prefill(producer)
    dropped = producer.snapshot().counters["malformed_messages"]
    port = producer.ports[which]
    import zmq  # noqa: PLC0415  # not everywhere where these tests are collected

    with zmq.Context() as context, context.socket(zmq.DEALER) as sender:
        sender.connect(f"tcp://{producer.address}:{port}")
        for message in GARBAGE:
            sender.send(message)
        sender.send_multipart([b"a", b"b", b"c"])
        with socket.create_connection((producer.address, port)) as raw:
            raw.sendall(NOT_ZMQ)
        until(
            lambda: (
                producer.snapshot().counters["malformed_messages"] >= dropped + len(GARBAGE) + 1
            ),
            "all garbage is counted",
        )
    request_id = decode(consumer, held)
    check_served(consumer, request_id)
    check_loaded(producer, held, consumer, request_id)
    producer.wait_until_idle()
