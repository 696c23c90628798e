"""What a consumer's rank keeps is bounded, whatever addresses requests name."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from connector.core.errors import MalformedPayload, PeerMismatch
from connector.core.offer import Address, parse_address
from connector.counters import Counters
from connector.metadata import Share
from connector.peer_book import PeerBook
from connector.release_sender import ReleaseSender
from connector.wire import RankPlace

MANY = 1500
PARAMS: dict[str, Any] = {
    "remote_host": "10.0.0.2",
    "remote_handshake_port": 6301,
    "remote_notify_port": 61005,
    "tp_size": 8,
}


class FakePeer:
    """A producer rank that never answers."""

    def __init__(self, host: str, port: int) -> None:
        self.name = f"{host}:{port}"
        self.is_closed = False
        self.is_waiting = True

    def close_handshake(self) -> None:
        self.is_waiting = False

    def close(self) -> None:
        self.is_closed = True


def address(number: int) -> Address:
    return Address("127.0.0.1", 1000 + number, 30000 + number, 1)


@pytest.fixture
def book() -> PeerBook:
    make: Any = FakePeer
    return PeerBook(make, 0, 1, Counters(), requires_safe_reads=False, verifies_reads=False)


@pytest.mark.requirement("R18")
def test_ranks_that_were_not_used_for_longest_are_forgotten(book: PeerBook) -> None:
    """All others stay as they are."""
    peers: list[Any] = []
    for number in range(MANY):
        peers.append(book.source(address(number)))
        book.source(address(0))
        book.close_unused([])
    assert [peer.is_closed for peer in peers] == [
        number not in (0, *range(MANY - 127, MANY)) for number in range(MANY)
    ]
    assert list(book) == [*peers[-127:-1], peers[-1], peers[0]]
    assert book.source(address(1)) is not peers[1]


@pytest.mark.requirement("R18", "R16")
def test_a_rank_in_use_is_kept_whole(book: PeerBook) -> None:
    """However many are used after it; the others wait for no handshake."""
    used, other = book.source(address(0)), book.source(address(1))
    for number in range(2, MANY):
        book.source(address(number))
        book.close_unused([used])
    peers: list[Any] = [used, other]
    assert [(peer.is_closed, peer.is_waiting) for peer in peers] == [(False, True), (True, False)]
    assert len(list(book)) == 128


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.mark.requirement("R18")
def test_releases_leave_sockets_for_others(context: zmq.Context[Any]) -> None:
    """Of producers that are gone, and of the greatest number of ranks."""
    sender = ReleaseSender(context, 0, 1)
    for number in range(MANY):
        sender.send(Share("t", address(number), None))
    sender.send(Share("t", Address("127.0.0.1", 1000, 30000, tp_size=64), None))
    assert len(sender._sockets) == 128
    context.socket(zmq.DEALER).close()
    sender.close()


@pytest.mark.requirement("R10", "S6")
@pytest.mark.parametrize(
    "wrong",
    [
        {"tp_size": 4096},
        {"remote_tp_size": 65},
        {"remote_host": ""},
        {"remote_host": "prefill-0.example"},
        {"remote_host": "::1"},
        {"remote_host": "10.0.0.300"},
        {"remote_host": "10.1"},
        {"remote_host": 167772162},
        {"remote_host": ["10.0.0.2"]},
        {"remote_handshake_port": 0},
        {"remote_notify_port": 65536},
        {"remote_notify_port": 65529},
        {"remote_dp_rank": 10_000},
        {"remote_dp_size_local": -1},
        {"remote_dp_size_local": "two"},
    ],
    ids=str,
)
def test_an_address_that_nobody_can_listen_on_is_malformed(wrong: dict[str, Any]) -> None:
    with pytest.raises(MalformedPayload):
        parse_address({**PARAMS, **wrong}, tp_size=8)


@pytest.mark.requirement("R10", "S6")
@pytest.mark.parametrize(
    "embedded",
    [
        ("", 6301, 61005),
        ("prefill-0", 6301, 61005),
        ("10.0.0.3", 99999, 61005),
        ("10.0.0.3", 6301, 0),
        ("10.0.0.3", 65530, 61005),
    ],
)
def test_neither_is_one_in_a_requests_id(embedded: tuple[str, int, int]) -> None:
    """Which comes before what the parameters say."""
    with pytest.raises(MalformedPayload):
        parse_address(PARAMS, tp_size=8, embedded=embedded)
    fitting = parse_address(PARAMS, tp_size=8, embedded=("10.0.0.3", 1, 65528))
    assert fitting[:3] == ("10.0.0.3", 1, 65528)


@pytest.mark.requirement("S6")
@pytest.mark.parametrize(
    ("embedded", "key"),
    [(None, "remote_host"), (("p-0", 6301, 61005), "host in the request's id")],
)
def test_a_host_name_is_refused_with_what_to_set(
    embedded: tuple[str, int, int] | None, key: str
) -> None:
    """libzmq would look it up in the thread that carries the messages of all peers."""
    expected = f"{key} is 'p-0'; expected an IPv4 address such as 10.0.0.1: set host_ip on the prod"
    with pytest.raises(MalformedPayload, match=expected):
        parse_address({**PARAMS, "remote_host": "p-0"}, tp_size=8, embedded=embedded)


@pytest.mark.requirement("R6")
@pytest.mark.parametrize(
    "key", ["tp_size", "remote_tp_size", "remote_dp_rank", "remote_dp_size_local"]
)
def test_a_number_that_is_null_is_one_that_is_left_out(key: str) -> None:
    """A router may know the key and not the number."""
    without = {name: value for name, value in PARAMS.items() if name != key}
    assert parse_address({**without, key: None}, tp_size=8) == parse_address(without, tp_size=8)


@pytest.mark.requirement("R6")
@pytest.mark.parametrize(
    ("dp_rank", "dp_local", "port"),
    [(9, 8, 6301 + 8), (7, 8, 6301 + 56), (8, 8, 6301), (9, 0, 6301 + 72), (9, None, 6301 + 72)],
)
def test_a_rank_on_another_machine_is_dialled_on_the_port_that_it_has_there(
    dp_rank: int, dp_local: int | None, port: int
) -> None:
    """Each machine's data-parallel ranks begin at its first port; 0 means that it is not known."""
    params = {**PARAMS, "remote_dp_rank": dp_rank, "remote_dp_size_local": dp_local}
    found = parse_address(params, tp_size=8)
    assert found.port_of(found.handshake_port, 0) == port


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("place", [(0, 2), (1, 1), (2, 4), None])
def test_another_rank_than_was_meant_is_not_read_from(place: tuple[int, int] | None) -> None:
    """An upstream peer does not tell which it is."""
    make: Any = FakePeer
    book = PeerBook(make, 1, 2, Counters(), requires_safe_reads=False, verifies_reads=False)
    producer = Address("127.0.0.1", 1000, 30000, 2)
    peer: Any = book.source(producer)
    peer.welcome = SimpleNamespace(place=None if place is None else RankPlace(*place))
    if place is None:
        return book.check_source(peer, producer)
    expected = f"is rank {place[0]} of {place[1]}, and rank 1 of 2 was to be read from"
    with pytest.raises(PeerMismatch, match=expected):
        book.check_source(peer, producer)
    peer.welcome.place = RankPlace(1, 2)
    return book.check_source(peer, producer)
