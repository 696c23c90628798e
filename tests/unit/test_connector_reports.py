"""What operators are told of what no answer shows: peers that cannot confirm, releases that cannot
be sent, and where bytes differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import zmq
from stand_in_library import connector_module

from connector import wire
from connector.core.errors import ConnectorError
from connector.core.load import Cause, LoadEvent
from connector.core.offer import Address, HoldId
from connector.counters import Counters
from connector.metadata import Share
from connector.peer_book import PeerBook
from connector.release_sender import ReleaseSender
from tests.connector_events import Events, logged

HOLD = HoldId("now", 1)
PRODUCERS = [Address("10.0.0.1", 6301, 61005, 1), Address("10.0.0.2", 6301, 61005, 1)]


@pytest.fixture
def events() -> Iterator[Events]:
    with logged() as heard:
        yield heard


# ------------------------------------------------------------- peers that cannot confirm


def shaken_hands(host: str, port: int) -> Any:
    """With upstream's connector, whose answer has nothing of ours."""
    welcome = SimpleNamespace(incarnation=None, digests=False)
    return SimpleNamespace(name=f"{host}:{port}", welcome=welcome)


def read_three_times(counters: Counters, **settings: bool) -> None:
    """From each producer, as far as its reads are allowed."""
    book = PeerBook(shaken_hands, 0, 1, counters, **settings)
    for address in PRODUCERS * 3:
        book.check_safe(book.source(address), None)


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("verifies", [False, True])
def test_each_peer_that_cannot_confirm_is_counted_and_told_of_once(
    verifies: bool, events: Events
) -> None:
    """However often it is read from."""
    counters = Counters()
    read_three_times(counters, requires_safe_reads=False, verifies_reads=verifies)
    unable = ["unprotected"] + ["unverified"] * verifies
    assert counters.take() == {f"{what}_peers": 2 for what in unable}
    told = sorted((event["event"], event["peer"]) for event in events)
    names = ["10.0.0.1:6301", "10.0.0.2:6301"]
    assert told == [(f"peer-{what}", name) for what in unable for name in names]


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("verifies", [False, True])
def test_a_peer_that_is_refused_is_not_counted_as_read_from(verifies: bool, events: Events) -> None:
    counters = Counters()
    with pytest.raises(ConnectorError, match=r"10\.0\.0\.1:6301 cannot .*require_safe_reads"):
        read_three_times(counters, requires_safe_reads=True, verifies_reads=verifies)
    assert (counters.take(), events) == ({}, [])


# ------------------------------------------------------------- releases


class Deaf:
    """A context whose sockets take no message."""

    def socket(self, _kind: int) -> Any:
        def send(_message: bytes, _flags: int) -> None:
            raise zmq.Again

        return SimpleNamespace(setsockopt=lambda *_: None, connect=lambda _path: None, send=send)


@pytest.mark.requirement("S6")
@pytest.mark.parametrize(
    ("producers_ranks", "reason"),
    [(1, "Resource temporarily unavailable"), (2, "tensor-parallel sizes 3 and 2 do not fit")],
    ids=["no room", "no rank"],
)
def test_a_release_that_cannot_be_sent_is_told(
    producers_ranks: int, reason: str, events: Events
) -> None:
    """And waits for nothing: the lease ends by itself."""
    context: Any = Deaf()
    address = PRODUCERS[0]._replace(tp_size=producers_ranks)
    ReleaseSender(context, 0, 3 if producers_ranks > 1 else 1).send(Share("tx-1", address, HOLD))
    (event,) = events
    assert (event["event"], event["transfer"]) == ("not-released", "tx-1")
    assert reason in event["reason"]


# ------------------------------------------------------------- bytes that differ


@pytest.fixture
def confirmation() -> Iterator[ModuleType]:
    yield from connector_module("confirmation")


class Digester:
    """Takes a block's number for its digest."""

    def run(self, job: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(job())
        return done

    def digests(self, blocks: Any) -> tuple[int, ...]:
        return tuple(block for _, ids in blocks for block in ids)


@pytest.mark.requirement("S8")
@pytest.mark.parametrize(
    ("theirs", "place"),
    [
        ((3, 4, 9), "block 2 holds other bytes for kda than the producer's block 5, in the state"),
        ((3, 9, 2), "block 4 holds other bytes for attn than the producer's block 8, in the full"),
        ((9, 4, 9), "block 2 holds .* for kda .* block 5, in the state, and in 1 more places"),
    ],
)
def test_a_difference_is_told_by_layer_group_and_blocks(
    confirmation: ModuleType, theirs: tuple[int, ...], place: str
) -> None:
    """The blocks of both sides."""
    layers = [
        SimpleNamespace(name="kda", payload_index=1, blocks=SimpleNamespace(size=64)),
        SimpleNamespace(name="attn", payload_index=0, blocks=SimpleNamespace(size=64)),
    ]
    asked: list[wire.Question] = []
    talk = SimpleNamespace(
        answer=lambda number: (
            wire.Answer(number, True, (theirs[2], *theirs[:2])) if asked else None
        ),
        call=None,
        reach=lambda _now, _incarnation, since: since <= _now,
        ask=lambda question: not asked.append(question),
    )
    plan = SimpleNamespace(pairs=[[(3, 7), (4, 8)], [(2, 5)]])
    order = SimpleNamespace(hold=HOLD, plan=plan)
    peer = SimpleNamespace(talk=talk)
    load = SimpleNamespace(peer=peer, order=order, is_verified=True, asked=None, started=0.0)
    confirms = confirmation.Confirmation(
        "all", SimpleNamespace(layers=layers), ["full", "state"], Digester(), 0.5
    )
    confirms.begin(load)
    assert confirms.go_on(load, 0.0) is None
    assert [question.blocks for question in asked] == [(("kda", (5,)), ("attn", (7, 8)))]
    assert confirms.go_on(load, 0.1) is LoadEvent.DOUBTED
    assert load.cause == Cause.WRONG_BYTES
    assert re.fullmatch(place, load.reason)
