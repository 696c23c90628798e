"""A consumer rank's connections to a producer rank, given odd handshakes and answers."""

from __future__ import annotations

import importlib
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import zmq
from odd_input import BATCH, FINGERPRINT, INCARNATION, OddInput

from connector import wire
from connector.core.errors import ConnectorError
from connector.core.fingerprint import check_same
from connector.core.offer import Address, HoldId
from connector.counters import Counters
from connector.peer_book import PeerBook
from hw_tests.process import shared_mori

_ADDRESS = Address("10.0.0.1", 6301, 61005, 1)
_ASKED = (1, 2, 3)


@contextmanager
def peer_module() -> Iterator[ModuleType]:
    """The module, over a library that is a stand-in."""
    before = set(sys.modules)
    shared_mori.install()
    module: Any = importlib.import_module("connector.peer")
    module.unpack_memory = _unpack
    yield module
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("mori", "connector"):
            del sys.modules[name]


def _unpack(descriptor: bytes) -> Any:
    """As the library does: it knows what it has packed, and refuses all else."""
    if descriptor != b"memory":
        raise ConnectorError("a memory descriptor cannot be read")
    return SimpleNamespace(id=2, data=0, size=1 << 20)


class FakeSocket:
    """Hands out what it is given, and takes everything."""

    def __init__(self) -> None:
        self.inbox: deque[list[bytes]] = deque()
        self.is_open = True

    def recv_multipart(self, _flags: int) -> list[bytes]:
        if not self.inbox:
            raise zmq.Again
        return self.inbox.popleft()

    def send(self, _message: bytes, _flags: int) -> None:
        pass

    def setsockopt(self, _option: int, _value: int) -> None:
        pass

    def connect(self, _path: str) -> None:
        pass

    def close(self) -> None:
        self.is_open = False


class FakeContext:
    """Opens them, and remembers those that are open."""

    def __init__(self) -> None:
        self.sockets: list[FakeSocket] = []

    def socket(self, _kind: int) -> FakeSocket:
        self.sockets = [socket for socket in self.sockets if socket.is_open] + [FakeSocket()]
        return self.sockets[-1]


class OddConnections:
    """A peer of one layer, and a book that keeps it."""

    def __init__(self, module: ModuleType) -> None:
        self._context = FakeContext()
        transport = SimpleNamespace(add_peer=lambda _descriptor: None)
        local = {"attn": (SimpleNamespace(id=1), 0)}
        endpoint = SimpleNamespace(transport=transport, local=local)
        memory = SimpleNamespace(layers=[SimpleNamespace(name="attn", regions=[0])])
        endpoints = SimpleNamespace(current=lambda *, on_trial: endpoint)
        self.counters = Counters()

        def make(host: str, port: int) -> Any:
            arguments = (self._context, host, port, memory, endpoints, _check)
            return module.Peer(*arguments, control_timeout_s=0.5, longest_pause_s=1.0)

        self._book = PeerBook(
            make, 0, 1, self.counters, requires_safe_reads=False, verifies_reads=True
        )
        self.connected = 0

    def check(self, seed: int) -> None:
        """Go through a batch of handshakes, each with some answers to questions."""
        odd = OddInput(seed)
        for _ in range(BATCH):
            peer = self._book.source(_ADDRESS)
            if self._shake_hands(peer, odd.welcome()):
                self._ask(peer, [odd.answer() for _ in _ASKED])
            peer.close()
            assert (peer.talk._answers, peer.talk.sockets, peer._sources) == ({}, [], [])
            assert not [s for s in self._context.sockets if s.is_open]
        assert len(list(self._book)) == 1

    def _ask(self, peer: Any, answers: list[list[bytes]]) -> None:
        """Only what is an answer to a question counts."""
        for number in _ASKED:
            assert peer.talk.ask(wire.Question(HoldId(INCARNATION, 1), number))
        inbox = peer.talk.call.socket.inbox
        inbox.extend(answers)
        while inbox:
            self._book.receive(0.1)
        assert set(peer.talk._answers) == set(_ASKED)
        for number in _ASKED:
            answer = peer.talk.answer(number)
            assert answer is None or answer.number == number
            peer.talk.drop(number)

    def _shake_hands(self, peer: Any, frames: list[bytes]) -> bool:
        """It is refused as what a load is refused for, or the peer is as the handshake says."""
        peer.connect(0.0, INCARNATION, 0.0)
        peer.talk._greeting.socket.inbox.extend([frame] for frame in frames)
        try:
            assert peer.connect(0.1, INCARNATION, 0.0)
            self._book.check_safe(peer, HoldId(INCARNATION, 1))
        except (ConnectorError, ValueError):
            return False
        assert peer.welcome.incarnation == INCARNATION
        self.connected += 1
        return True


def _check(name: str, welcome: wire.Welcome) -> None:
    if welcome.fingerprint is not None:
        check_same(name, FINGERPRINT, welcome.fingerprint)
