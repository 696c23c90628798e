"""Whatever bytes arrive, decoders refuse them with one error, and a producer's rank lives on."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from connector import wire
from connector.core.errors import MalformedPayload, PeerMismatch
from connector.core.fingerprint import PROTOCOL_VERSION
from connector.core.offer import EXTENSION_KEY, HoldId
from connector.counters import Counters
from connector.holds import HoldBook
from connector.listener import Listener
from faults.kinds.malformed_message import MalformedMessage

NESTED = b"\x91" * 2000
ODD: tuple[Any, ...] = (
    float("inf"),
    float("nan"),
    -1,
    2**63,
    2**64 - 1,
    "1" * 30,
    True,
    None,
    [],
    {},
    1.0,
)
KEYS = ("ask", "blocks", "digests", "hold", "incarnation", "renew", "answer", "held", "reader",
        "transfer_id", "consumer_tp_size", EXTENSION_KEY)  # fmt: skip

DECODERS: dict[str, Callable[[bytes], Any]] = {
    "question": wire.decode_question,
    "answer": wire.decode_answer,
    "renewal": wire.decode_renewal,
    "release": wire.decode_release,
    "welcome": lambda message: wire.decode_welcome(message, msgspec.msgpack.encode({})),
    "descriptors": lambda message: wire.decode_welcome(welcome(), message),
}


def packed(**fields: Any) -> bytes:
    return msgspec.msgpack.encode({"type": EXTENSION_KEY, "version": PROTOCOL_VERSION, **fields})


def release(**extension: Any) -> bytes:
    fields = {"type": "release", "transfer_id": "t", "consumer_tp_size": 1}
    return msgspec.msgpack.encode({**fields, EXTENSION_KEY: extension})


def welcome(**fields: Any) -> bytes:
    metadata = {
        "engine_id": "p0",
        "agent_metadata": b"",
        "kv_caches_base_addr": [0],
        "num_blocks": 1,
        "block_len": 1,
        "attn_backend_name": "A",
        "hybrid": {"version": PROTOCOL_VERSION, "incarnation": "now", "fingerprint": {}},
    }
    return msgspec.msgpack.encode({**metadata, **fields})


values = st.recursive(
    st.sampled_from(ODD) | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=8,
)
fields = st.dictionaries(st.sampled_from(KEYS), values)
messages = st.one_of(
    st.binary(max_size=64),
    st.integers(0, 3000).map(lambda depth: b"\x91" * depth),
    st.integers(0, 3000).map(lambda depth: b"\x81\xa4type" * depth),
    fields.map(lambda some: packed(**some)),
    fields.map(lambda some: release(**some)),
    fields.map(lambda some: welcome(hybrid={"version": PROTOCOL_VERSION, **some})),
    st.builds(lambda some, value: msgspec.msgpack.encode({**some, "type": value}), fields, values),
)


@pytest.mark.requirement("R17", "S6")
@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
@given(message=messages)
def test_bytes_are_decoded_or_refused(decode: Callable[[bytes], Any], message: bytes) -> None:
    """By no other error than the one that messages are dropped for."""
    with suppress(MalformedPayload):
        decode(message)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_number_is_a_whole_one_that_a_peer_can_send_back(odd: Any) -> None:
    for message, decode in (
        (packed(ask=odd, incarnation="now", hold=1), wire.decode_question),
        (packed(ask=1, incarnation="now", hold=odd), wire.decode_question),
        (packed(answer=odd, held=True), wire.decode_answer),
        (packed(renew=[odd], incarnation="now"), wire.decode_renewal),
        (release(incarnation="now", hold=odd, reader=0), wire.decode_release),
        (release(incarnation="now", hold=1, reader=odd), wire.decode_release),
        (welcome(num_blocks=odd), DECODERS["welcome"]),
        (welcome(kv_caches_base_addr=[odd]), DECODERS["welcome"]),
    ):
        if (odd, decode) != (1.0, DECODERS["welcome"]):  # vLLM's decoder takes it for 1
            with pytest.raises(MalformedPayload):
                decode(message)


@pytest.mark.requirement("R15", "S7")
@pytest.mark.parametrize("version", [2, 4, "3", None])
def test_a_peer_of_another_version_is_refused(version: Any) -> None:
    """It is not taken for upstream's, whose blocks are read without confirmation."""
    other = welcome(hybrid={"version": version, "incarnation": "now", "fingerprint": {}})
    with pytest.raises(PeerMismatch, match=f"speaks version {version!r} .* this engine 3; run the"):
        DECODERS["welcome"](other)
    assert DECODERS["welcome"](welcome(hybrid={})).incarnation is None


def free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


class Rank:
    """A producer rank's listener on real sockets, and a peer of it."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.ports = free_ports()
        self.fails = False
        digester: Any = SimpleNamespace(close=lambda: None)  # nobody asks for digests
        holds = HoldBook(1)
        self.listener = Listener(*self.ports, holds, digester, self.make_welcome, self.counters)
        self.context = zmq.Context()

    def make_welcome(self) -> tuple[bytes, bytes]:
        if self.fails:
            raise RuntimeError
        return b"a", b"b"

    def dial(self, port: int) -> zmq.Socket[bytes]:
        peer = self.context.socket(zmq.DEALER)
        peer.setsockopt(zmq.RCVTIMEO, 10_000)
        peer.connect(f"tcp://127.0.0.1:{port}")
        return peer

    def close(self) -> None:
        self.context.destroy(linger=0)
        self.listener.close()


@pytest.fixture
def rank() -> Iterator[Rank]:
    opened = Rank()
    yield opened
    opened.close()


@pytest.mark.requirement("R17", "S6")
def test_a_rank_answers_after_messages_of_any_kind(rank: Rank) -> None:
    """On both ports; and after an error of its own, too."""
    odd = [
        NESTED,
        packed(ask=1, incarnation="x", hold=float("inf")),
        packed(ask="1" * 30, incarnation="x", hold=0),
        release(incarnation="x", hold=float("inf"), reader=0),
    ]
    peers = [rank.dial(port) for port in rank.ports]
    rank.fails = True
    peers[0].send(wire.GET_META)
    for peer in peers:
        for message in odd:
            peer.send(message)
    peers[0].send(wire.encode_question(wire.Question(HoldId("x", 1), 7)))
    assert wire.decode_answer(peers[0].recv_multipart()[-1]) == wire.Answer(7, False)
    rank.fails = False
    peers[0].send(wire.GET_META)
    assert [peers[0].recv_multipart()[-1] for _ in "ab"] == [b"a", b"b"]
    assert rank.counters.take()["malformed_messages"] >= 1 + len(odd)


@pytest.mark.parametrize("content", ["nested", "infinite", "huge"])
def test_the_fault_sends_what_must_be_refused(content: Any) -> None:
    """As a question; so it reaches the decoders that it is meant for."""
    scene: Any = SimpleNamespace(rng=random.Random(0))
    message = MalformedMessage(content=content)._frame(scene)
    with pytest.raises(MalformedPayload):
        wire.decode_question(message)
