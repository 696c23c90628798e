"""What a consumer rank says to a producer rank, and to which process: the one that sent the welcome
of the connection, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import zmq
from stand_in_library import connector_module

from connector import wire
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


class Conversation:
    """A peer without layers, and all its connections so far."""

    def __init__(self, module: ModuleType) -> None:
        self.connections: list[Connection] = []
        context: Any = SimpleNamespace(socket=self._open)
        transport = SimpleNamespace(add_peer=lambda _descriptor: None)
        endpoint = SimpleNamespace(transport=transport, local={})
        endpoints = SimpleNamespace(current=lambda *, on_trial: endpoint)
        memory = SimpleNamespace(layers=[])
        self.peer = module.Peer(
            context,
            "10.0.0.1",
            6301,
            memory,
            endpoints,
            lambda _name, _welcome: None,
            control_timeout_s=CONTROL_TIMEOUT_S,
            longest_pause_s=1.0,
        )

    def _open(self, _kind: int) -> Connection:
        self.connections.append(Connection())
        return self.connections[-1]

    def welcome(self, incarnation: str) -> None:
        """Answer the last hello."""
        fields = {
            "engine_id": "p0",
            "agent_metadata": b"",
            "kv_caches_base_addr": [],
            "num_blocks": 9,
            "block_len": 64,
            "attn_backend_name": "X",
        }
        place = wire.RankPlace(0, 1)
        frames = wire.encode_welcome(fields, {}, incarnation, {}, place)  # type: ignore[arg-type]
        self.connections[-1].inbox += [[frame] for frame in frames]

    def shake_hands(self, now: float, incarnation: str = "now") -> None:
        self.peer.reach(now, incarnation)
        self.welcome(incarnation)
        assert self.peer.reach(now, incarnation)

    def lose(self) -> None:
        self.connections[-1].has_hung_up = True


@pytest.fixture
def module() -> Iterator[ModuleType]:
    yield from connector_module("confirmation")


@pytest.fixture
def conversation(module: ModuleType) -> Conversation:
    import connector.peer  # over the stand-in

    return Conversation(connector.peer)


def question(number: int) -> wire.Question:
    return wire.Question(HoldId("now", 1), number)


@pytest.mark.requirement("R6")
def test_everything_is_said_on_the_connection_of_the_welcome(conversation: Conversation) -> None:
    conversation.shake_hands(0.0)
    assert conversation.peer.ask(question(1))
    assert conversation.peer.extend_leases("now", [1])
    (connection,) = conversation.connections
    assert connection.sent == [
        wire.GET_META,
        wire.encode_question(question(1)),
        wire.encode_renewal("now", [1]),
    ]
    assert conversation.peer.sockets == [connection]


@pytest.mark.requirement("R6")
def test_what_meets_no_connection_is_said_to_nobody(conversation: Conversation) -> None:
    """Until a welcome has come over the next one."""
    conversation.shake_hands(0.0)
    conversation.lose()
    assert not conversation.peer.extend_leases("now", [1])
    assert conversation.peer.sockets == []
    assert not conversation.peer.reach(10.0, "now")
    first, second = conversation.connections
    assert (first.is_open, second.sent) == (False, [wire.GET_META])
    conversation.welcome("now")
    assert conversation.peer.reach(10.1, "now")
    assert conversation.peer.extend_leases("now", [1])
    assert second.sent[1:] == [wire.encode_renewal("now", [1])]


@pytest.mark.requirement("O10")
def test_a_peer_that_always_hangs_up_is_called_as_rarely_as_one_that_is_silent(
    conversation: Conversation,
) -> None:
    """Else it would keep the thread of all loads busy."""
    for step in range(200):
        now = step / 100
        if conversation.peer.reach(now, "now"):
            conversation.lose()
            assert not conversation.peer.extend_leases("now", [1])
        elif conversation.connections and conversation.connections[-1].is_open:
            conversation.welcome("now")
    assert len(conversation.connections) == 2 / CONTROL_TIMEOUT_S


def load_of(peer: Any) -> Any:
    order = SimpleNamespace(hold=HoldId("now", 1))
    return SimpleNamespace(peer=peer, order=order, is_verified=False, to_verify=[], asked=None)


@pytest.fixture
def confirming(module: ModuleType, conversation: Conversation) -> tuple[Any, Any]:
    """A load about which has been asked."""
    memory = SimpleNamespace(layers=[])
    confirms = module.Confirmation("off", memory, [], None, CONTROL_TIMEOUT_S)
    load = load_of(conversation.peer)
    conversation.shake_hands(0.0)
    confirms.begin(load)
    assert confirms.go_on(load, 0.0) is None
    assert len(conversation.connections[0].sent) == 2
    return confirms, load


@pytest.mark.requirement("S3", "S6")
def test_a_question_is_asked_again_on_the_next_connection(
    conversation: Conversation, confirming: tuple[Any, Any]
) -> None:
    """At once, though its answer is not overdue: nobody else will give it."""
    confirms, load = confirming
    conversation.peer.forget()  # such as for another load, whose reads have failed
    assert confirms.go_on(load, 0.1) is None
    conversation.welcome("now")
    assert confirms.go_on(load, 0.2) is None
    again = conversation.connections[1]
    assert again.sent[1] == conversation.connections[0].sent[1]
    number = load.asked.number
    again.inbox.append([wire.encode_answer(wire.Answer(number, True))])
    conversation.peer.receive_answers()
    assert confirms.go_on(load, 0.3) is LoadEvent.HELD
    assert len(again.sent) == 2


@pytest.mark.requirement("S3", "S4")
@pytest.mark.parametrize("knows", ["by the silence", "by the connection", "by another load"])
def test_a_producer_that_has_started_again_holds_nothing_of_before(
    conversation: Conversation, confirming: tuple[Any, Any], knows: str
) -> None:
    confirms, load = confirming
    if knows == "by another load":
        conversation.peer.forget()
        conversation.shake_hands(0.1, "later")
    else:
        conversation.lose()
    assert confirms.go_on(load, 0.6) is None
    assert confirms.go_on(load, 0.7) is None
    conversation.welcome("later")
    assert confirms.go_on(load, 0.8) is LoadEvent.GONE
    assert load.cause == Cause.NO_LONGER_HELD
    assert "it has started again" in load.reason


@pytest.mark.requirement("S3")
def test_a_welcome_that_cannot_be_read_confirms_nothing(
    conversation: Conversation, confirming: tuple[Any, Any]
) -> None:
    confirms, load = confirming
    conversation.lose()
    assert confirms.go_on(load, 0.6) is None
    assert confirms.go_on(load, 0.7) is None
    conversation.connections[-1].inbox += [[b"\xc1"], [b"\xc1"]]
    assert confirms.go_on(load, 0.8) is LoadEvent.GONE
    assert load.cause == Cause.NOT_CONFIRMED


def test_an_offer_of_another_start_hangs_up_on_nobody_for_long(conversation: Conversation) -> None:
    """The next one of the present start calls at once."""
    conversation.shake_hands(0.0)
    assert not conversation.peer.reach(0.1, "before")
    conversation.welcome("now")
    with pytest.raises(PeerMismatch, match="started again"):
        conversation.peer.reach(0.1, "before")
    conversation.shake_hands(0.1)
