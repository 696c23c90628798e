"""Connections of the side channel to a machine that is gone."""

from __future__ import annotations

import ast
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from source_tree import python_files

from connector import wire
from connector.core.offer import Address
from connector.counters import Counters
from connector.holds import HoldBook
from connector.listener import Listener
from connector.metadata import Share
from connector.release_sender import ReleaseSender
from connector.side_channel import open_context

ESTABLISHED, KEEPALIVE = "01", "02"  # in the kernel's table
PATIENCE_S = 10


def free_ports() -> tuple[int, int]:
    with (
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as one,
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other,
    ):
        return one.getsockname()[1], other.getsockname()[1]


def timers(port: int) -> list[tuple[str, int]]:
    """Of both ends of the connections to a port: what the kernel waits for, and for how many s."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = []
    for _, ours, theirs, state, _, timer, *_ in rows:
        if state == ESTABLISHED and f":{port:04X}" in (ours[-5:], theirs[-5:]):
            kind, ticks = timer.split(":")
            found.append((kind, int(ticks, 16) // 100))
    return found


@pytest.fixture
def connected() -> Iterator[int]:
    """A notify port that a consumer has sent a release to."""
    ports = free_ports()
    digester: Any = SimpleNamespace(close=lambda: None)
    listener = Listener(*ports, HoldBook(1), digester, lambda: (b"", b""), Counters())
    context = open_context()
    sender = ReleaseSender(context, 0, 1)
    sender.send(Share("t", Address("127.0.0.1", *ports, 1), None))
    yield ports[1]
    sender.close()
    context.destroy(linger=0)
    listener.close()


@pytest.mark.requirement("R18")
def test_both_ends_ask_a_silent_one_whether_it_is_there(connected: int) -> None:
    """Else files of machines that have vanished would stay open until there are no more."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := timers(connected)) < 2 or any(kind != KEEPALIVE for kind, _ in found):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    assert all(seconds <= 30 for _, seconds in found)


@pytest.mark.requirement("R18")
def test_a_minute_of_silence_ends_a_connection() -> None:
    """Whether or not something is under way."""
    context = open_context()
    with context.socket(zmq.DEALER) as opened:
        idle, interval, count = (
            opened.getsockopt(option)
            for option in (zmq.TCP_KEEPALIVE_IDLE, zmq.TCP_KEEPALIVE_INTVL, zmq.TCP_KEEPALIVE_CNT)
        )
        longest = opened.getsockopt(zmq.TCP_MAXRT)
    context.destroy(linger=0)
    assert idle + interval * count == longest / 1000 == 60


@pytest.mark.requirement("R18")
def test_a_message_that_is_too_long_is_not_taken_in() -> None:
    """The connection ends with it, and others are answered as before."""
    ports = free_ports()
    digester: Any = SimpleNamespace(close=lambda: None)
    counters = Counters()
    listener = Listener(*ports, HoldBook(1), digester, lambda: (b"a", b"b"), counters)
    with zmq.Context() as context:
        for message in (bytes(2**24 + 1), wire.GET_META):
            with context.socket(zmq.DEALER) as peer:
                peer.setsockopt(zmq.LINGER, 1000 * PATIENCE_S)
                closings = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
                peer.connect(f"tcp://127.0.0.1:{ports[0]}")
                peer.send(message)
                awaited = peer if message == wire.GET_META else closings
                assert awaited.poll(1000 * PATIENCE_S)
                peer.disable_monitor()
                peer.setsockopt(zmq.LINGER, 0)
    listener.close()
    assert not counters.take()


@pytest.mark.requirement("R18")
def test_no_socket_of_the_connector_is_without() -> None:
    """All contexts are made in one place."""
    makers = [
        path.name
        for path in python_files("connector")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("zmq.Context", "Context")
    ]
    assert makers == ["side_channel.py"]
