"""What a consumer rank says to a producer rank, and to which process: the one that sent the welcome
of the connection, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zmq
from stand_in_library import connector_module

from connector import wire
from connector.conversation import Conversation
from connector.core.errors import PeerMismatch
from connector.core.load import Cause, LoadEvent
from connector.core.offer import HoldId

CONTROL_TIMEOUT_S = 0.5


@dataclass
class Connection:
    """A socket whose other end can hang up."""

    inbox: list[list[bytes]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    options: dict[int, int] = field(default_factory=dict)
    has_hung_up: bool = False
    is_open: bool = True

    def setsockopt(self, option: int, value: int) -> None:
        self.options[option] = value

    def connect(self, _path: str) -> None:
        assert self.options[zmq.RECONNECT_IVL] == -1

    def send(self, message: bytes, _flags: int) -> None:
        assert self.is_open
        if self.has_hung_up:
            raise zmq.Again
        self.sent.append(message)

    def recv_multipart(self, _flags: int) -> list[bytes]:
        if self.has_hung_up or not self.inbox:
            raise zmq.Again
        return self.inbox.pop(0)

    def close(self) -> None:
        self.is_open = False


class Talk:
    """A conversation, and all its connections so far."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        context: Any = SimpleNamespace(socket=self._open)
        self.side = Conversation(context, "10.0.0.1:6301", "tcp://10.0.0.1:6301", CONTROL_TIMEOUT_S)

    def _open(self, _kind: int) -> Connection:
        self.connections.append(Connection())
        return self.connections[-1]

    def welcome(self, incarnation: str | None) -> None:
        """Answer the last hello."""
        fields = {
            "engine_id": "p0",
            "agent_metadata": b"",
            "kv_caches_base_addr": [],
            "num_blocks": 9,
            "block_len": 64,
            "attn_backend_name": "X",
        }
        if incarnation is None:  # upstream's
            frames = [msgspec.msgpack.encode(fields), msgspec.msgpack.encode({})]
        else:
            place = wire.RankPlace(0, 1)
            frames = [*wire.encode_welcome(fields, {}, incarnation, {}, place)]
        self.connections[-1].inbox += [[frame] for frame in frames]

    def shake_hands(self, now: float, incarnation: str = "now") -> None:
        assert not self.side.reach(now, incarnation, since=now)
        self.welcome(incarnation)
        assert self.side.reach(now, incarnation, since=now)

    def lose(self) -> None:
        self.connections[-1].has_hung_up = True

    def hellos(self) -> int:
        return sum(wire.GET_META in connection.sent for connection in self.connections)


@pytest.fixture
def talk() -> Talk:
    return Talk()


def question(number: int) -> wire.Question:
    return wire.Question(HoldId("now", 1), number)


@pytest.mark.requirement("R6")
def test_everything_is_said_on_the_connection_of_the_welcome(talk: Talk) -> None:
    talk.shake_hands(0.0)
    assert talk.side.ask(question(1))
    assert talk.side.extend_leases("now", [1])
    (connection,) = talk.connections
    assert connection.sent == [
        wire.GET_META,
        wire.encode_question(question(1)),
        wire.encode_renewal("now", [1]),
    ]
    assert talk.side.sockets == [connection]


@pytest.mark.requirement("R6")
def test_what_meets_no_connection_is_said_to_nobody(talk: Talk) -> None:
    """Until a welcome has come over the next one."""
    talk.shake_hands(0.0)
    talk.lose()
    assert not talk.side.extend_leases("now", [1])
    assert talk.side.sockets == []
    assert not talk.side.reach(10.0, "now", since=10.0)
    first, second = talk.connections
    assert (first.is_open, second.sent) == (False, [wire.GET_META])
    talk.welcome("now")
    assert talk.side.reach(10.1, "now", since=10.0)
    assert talk.side.extend_leases("now", [1])
    assert second.sent[1:] == [wire.encode_renewal("now", [1])]


@pytest.mark.requirement("R6", "S7")
def test_upstream_is_asked_nothing_and_keeps_no_connection(talk: Talk) -> None:
    """In the place of an engine that could be asked, either."""
    talk.shake_hands(0.0)
    assert not talk.side.reach(1.0, "before", since=1.0)
    talk.welcome(None)
    assert not talk.side.reach(1.1, "before", since=1.0)
    assert talk.side.sockets == []
    with pytest.raises(PeerMismatch, match="started again"):
        talk.side.reach(1.2, "now", since=1.0)
    assert talk.hellos() == 2


@pytest.mark.requirement("S6")
def test_a_peer_that_always_hangs_up_is_called_as_rarely_as_one_that_is_silent(talk: Talk) -> None:
    """Else it would keep the thread of all loads busy."""
    for step in range(200):
        now = step / 100
        if talk.side.reach(now, "now", since=0.0):
            talk.lose()
            assert not talk.side.extend_leases("now", [1])
        elif talk.connections and talk.connections[-1].is_open:
            talk.welcome("now")
    assert talk.hellos() == 2 / CONTROL_TIMEOUT_S


@pytest.mark.requirement("S6")
def test_a_peer_that_hangs_up_on_a_hello_is_one_that_does_not_answer(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "has_hung_up", True)
    assert not any(talk.side.reach(step / 100, "now", since=0.0) for step in range(200))
    assert len(talk.connections) == 2 / CONTROL_TIMEOUT_S


@pytest.mark.requirement("S6")
def test_offers_of_another_start_leave_the_connection_of_the_present_one_alone(talk: Talk) -> None:
    """However many there are, one hello after the last of them tells that they are of the past."""
    talk.shake_hands(0.0)
    stale = [f"before-{n}" for n in range(30)]
    assert not any(talk.side.reach(1.0, each, since=1.0) for each in stale)
    assert talk.side.reach(1.0, "now", since=1.0)
    talk.welcome("now")
    assert not talk.side.reach(1.1, stale[0], since=1.0)
    for each in stale:
        with pytest.raises(PeerMismatch, match="started again"):
            talk.side.reach(1.2, each, since=1.0)
    assert talk.side.reach(1.2, "now", since=1.0)
    assert (talk.hellos(), talk.connections[0].is_open) == (2, True)
    assert talk.side.sockets == [talk.connections[0]]


def test_a_hello_that_nobody_waits_for_any_more_leaves_nothing_to_read(talk: Talk) -> None:
    """The loader's thread would not rest. And it tells of the moment at which it was said."""
    talk.side.reach(0.0, "now", since=0.0)
    talk.welcome("later")
    talk.side.receive(0.1)
    assert talk.connections[0].inbox == []
    assert not talk.side.reach(9.0, "now", since=9.0)
    assert not talk.side.reach(9.1, "now", since=9.0), "it may have come back since"
    talk.welcome("now")
    assert talk.side.reach(9.2, "now", since=9.0)


def load_of(talk: Talk) -> Any:
    order = SimpleNamespace(hold=HoldId("now", 1))
    peer = SimpleNamespace(talk=talk.side)
    return SimpleNamespace(
        peer=peer, order=order, is_verified=False, to_verify=[], asked=None, started=0.0
    )


@pytest.fixture
def confirming(talk: Talk) -> Iterator[tuple[Any, Any]]:
    """A load about which has been asked."""
    for module in connector_module("confirmation"):
        memory = SimpleNamespace(layers=[])
        confirms = module.Confirmation("off", memory, [], None, CONTROL_TIMEOUT_S)
        load = load_of(talk)
        talk.shake_hands(0.0)
        confirms.begin(load)
        assert confirms.go_on(load, 0.0) is None
        assert len(talk.connections[0].sent) == 2
        yield confirms, load


@pytest.mark.requirement("S3", "S6")
def test_a_question_is_asked_again_on_the_next_connection(
    talk: Talk, confirming: tuple[Any, Any]
) -> None:
    """At once, though its answer is not overdue: nobody else will give it."""
    confirms, load = confirming
    talk.side.close()  # for another load, which was not answered
    assert confirms.go_on(load, 0.1) is None
    talk.welcome("now")
    assert confirms.go_on(load, 0.2) is None
    again = talk.connections[1]
    assert again.sent[1] == talk.connections[0].sent[1]
    number = load.asked.number
    again.inbox.append([wire.encode_answer(wire.Answer(number, True))])
    talk.side.receive(0.3)
    assert confirms.go_on(load, 0.3) is LoadEvent.HELD
    assert len(again.sent) == 2


@pytest.mark.requirement("S3", "S4")
@pytest.mark.parametrize("knows", ["by the connection", "by another load"])
def test_a_producer_that_has_started_again_holds_nothing_of_before(
    talk: Talk, confirming: tuple[Any, Any], knows: str
) -> None:
    confirms, load = confirming
    if knows == "by the connection":
        talk.lose()
        assert confirms.go_on(load, 0.6) is None
        assert confirms.go_on(load, 0.7) is None
        talk.welcome("later")
        assert confirms.go_on(load, 0.8) is None
    else:
        talk.shake_hands(0.6, "later")
        assert not talk.connections[0].is_open
    assert confirms.go_on(load, 0.9) is LoadEvent.GONE
    assert load.cause == Cause.NO_LONGER_HELD
    assert "it has started again" in load.reason


@pytest.mark.requirement("S3")
def test_a_welcome_that_cannot_be_read_decides_nothing(
    talk: Talk, confirming: tuple[Any, Any]
) -> None:
    """The next one does, a control time-out after the hello before."""
    confirms, load = confirming
    talk.lose()
    assert confirms.go_on(load, 0.6) is None
    assert confirms.go_on(load, 0.7) is None
    talk.connections[-1].inbox += [[b"\xc1"], [b"\xc1"]]
    assert [confirms.go_on(load, 0.8 + step / 10) for step in range(5)] == [None] * 5
    assert talk.hellos() == 3
    talk.welcome("now")
    assert confirms.go_on(load, 1.3) is None
    assert len(talk.connections[-1].sent) == 2


def hear(talk: Talk, connection: Connection, number: int, now: float) -> None:
    connection.inbox.append([wire.encode_answer(wire.Answer(number, True))])
    talk.side.receive(now)


@pytest.mark.requirement("S6")
def test_a_connection_that_leads_nowhere_is_replaced_after_one_control_time_out(
    talk: Talk, confirming: tuple[Any, Any]
) -> None:
    """Nobody has said that it has gone, but the engine answers over another one."""
    confirms, load = confirming
    assert confirms.go_on(load, 0.4) is None
    talk.side.receive(0.4)
    assert talk.hellos() == 1
    assert confirms.go_on(load, 0.5) is None
    talk.side.receive(0.51)
    assert talk.hellos() == 2
    talk.welcome("now")
    talk.side.receive(0.52)
    old, new = talk.connections
    assert (old.is_open, talk.side.sockets) == (False, [new])
    assert confirms.go_on(load, 0.53) is None
    hear(talk, new, load.asked.number, 0.54)
    assert confirms.go_on(load, 0.55) is LoadEvent.HELD


@pytest.mark.requirement("S6")
def test_a_connection_over_which_something_comes_is_kept(
    talk: Talk, confirming: tuple[Any, Any]
) -> None:
    """Though this question is overdue, or its answer comes while another connection is made."""
    confirms, load = confirming
    hear(talk, talk.connections[0], 99, 0.4)
    assert confirms.go_on(load, 0.5) is None
    talk.side.receive(0.51)
    assert talk.hellos() == 1
    confirms.begin(load)
    assert confirms.go_on(load, 0.6) is None
    assert confirms.go_on(load, 1.2) is None
    talk.side.receive(1.2)
    talk.welcome("now")
    hear(talk, talk.connections[0], load.asked.number, 1.3)
    assert talk.connections[0].is_open
    assert confirms.go_on(load, 1.3) is LoadEvent.HELD


def asks_from(talk: Talk, confirms: Any, load: Any, first: float, last: float) -> None:
    """Turns of the loader's thread, a tenth of a second each."""
    for step in range(round((last - first) * 10) + 1):
        now = first + step / 10
        assert confirms.go_on(load, now) is None
        talk.side.receive(now)


@pytest.mark.requirement("S8")
def test_digests_may_take_longer_than_an_answer(talk: Talk, confirming: tuple[Any, Any]) -> None:
    """Asked for over another connection they would be computed twice."""
    confirms, load = confirming
    load.asked.digests = object()
    asks_from(talk, confirms, load, 0.1, 4.9)
    assert talk.hellos() == 1
    asks_from(talk, confirms, load, 5.1, 5.2)
    assert talk.hellos() == 2


@pytest.mark.requirement("S6")
def test_a_slow_producer_is_given_longer_on_each_connection(
    talk: Talk, confirming: tuple[Any, Any]
) -> None:
    """Else each would end before its answer is there, if hellos are answered at once."""
    confirms, load = confirming
    asks_from(talk, confirms, load, 0.1, 0.6)
    assert talk.hellos() == 2
    talk.welcome("now")
    asks_from(talk, confirms, load, 0.7, 1.5)
    assert talk.hellos() == 2
    hear(talk, talk.connections[1], load.asked.number, 1.6)
    assert confirms.go_on(load, 1.6) is LoadEvent.HELD


@pytest.fixture
def peer(talk: Talk) -> Iterator[Any]:
    """A producer rank without layers."""
    transport = SimpleNamespace(add_peer=lambda _descriptor: None)
    endpoint = SimpleNamespace(transport=transport, local={})
    endpoints = SimpleNamespace(current=lambda *, on_trial: endpoint)
    memory = SimpleNamespace(layers=[])
    for module in connector_module("peer"):
        peer = module.Peer(
            None,
            "10.0.0.1",
            6301,
            memory,
            endpoints,
            lambda _name, _welcome: None,
            control_timeout_s=CONTROL_TIMEOUT_S,
            longest_pause_s=1.0,
        )
        peer.talk, peer.endpoint = talk.side, endpoint
        yield peer


@pytest.mark.requirement("S6")
def test_who_only_asks_takes_no_welcome_away_from_who_wants_to_read(talk: Talk, peer: Any) -> None:
    assert not peer.connect(0.0, "now", 0.0)
    talk.welcome("now")
    assert talk.side.reach(0.1, "now", since=0.0)
    assert peer.connect(0.1, "now", 0.0)
    assert talk.hellos() == 1


@pytest.mark.requirement("S6")
def test_an_offer_of_the_past_leaves_what_others_read_through(talk: Talk, peer: Any) -> None:
    """Until the peer has to be greeted for a reason of our own."""
    peer.connect(0.0, "now", 0.0)
    talk.welcome("now")
    assert peer.connect(0.1, "now", 0.0)
    peer._sessions["kept"] = object()
    assert not peer.connect(1.0, "before", 1.0)
    talk.welcome("now")
    assert not peer.connect(1.1, "before", 1.0)
    with pytest.raises(PeerMismatch):
        peer.connect(1.2, "before", 1.0)
    assert peer.connect(1.2, "now", 1.2)
    assert (list(peer._sessions), talk.hellos()) == (["kept"], 2)
    peer.forget()
    assert not peer.connect(1.3, "now", 1.3)
    assert (list(peer._sessions), talk.hellos()) == ([], 3)
