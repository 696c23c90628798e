"""A producer rank's listener on real sockets, given odd messages."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import zmq
from odd_input import BATCH, INCARNATION, OddInput

from connector.core.errors import ConnectorError
from connector.counters import Counters
from connector.digests import Digester
from connector.holds import HoldBook
from connector.listener import Listener
from connector.metadata import ExpectedHold, StepOrders

_LAST = b"the last message"
_NAMES = ["r1", "r2", "r3"]


class Digests(Digester):
    """Knows one layer of eight blocks, all of them empty."""

    def __init__(self) -> None:
        cache = SimpleNamespace(device="cpu")
        layer = SimpleNamespace(name="attn", cache=cache, blocks=SimpleNamespace(size=1024))
        memory: Any = SimpleNamespace(layers=[layer], num_blocks=8)
        super().__init__(memory)

    def digests(self, blocks: Any) -> tuple[int, ...]:
        return tuple(0 for _, ids in blocks for _ in ids)


class WatchedListener(Listener):
    """Keeps errors that are none of the input's, and counts last messages."""

    def _run(self) -> None:
        self.broken: list[BaseException] = []
        self.ends = threading.Semaphore(0)
        super()._run()

    def _handle(self, socket: Any, frames: list[bytes]) -> None:
        if frames[-1] == _LAST:
            self.ends.release()
            return
        try:
            super()._handle(socket, frames)
        except (ConnectorError, zmq.ZMQError):
            raise
        except Exception as error:
            self.broken.append(error)
            raise


class OddPorts:
    """A listener, and a peer that sends it batches of messages about three holds."""

    def __init__(self) -> None:
        self.holds = HoldBook(1)
        ports = _free_port(), _free_port()
        self.counters = Counters()
        self.listener = WatchedListener(
            *ports, self.holds, Digests(), lambda: (b"a", b"b"), self.counters
        )
        self._context: zmq.Context[Any] = zmq.Context()
        self._peers = [self._dial(port) for port in ports]

    def _dial(self, port: int) -> zmq.Socket[bytes]:
        peer = self._context.socket(zmq.DEALER)
        peer.connect(f"tcp://127.0.0.1:{port}")
        return peer

    def check(self, seed: int) -> None:
        """Send a batch: the thread takes all of it, each hold ends once, and nothing is left."""
        expected = [ExpectedHold(name, f"t{n}", n) for n, name in enumerate(_NAMES, start=1)]
        self.holds.take_orders(StepOrders(INCARNATION, expected=expected, offered=[2, 3]))
        odd = OddInput(seed)
        for number in range(BATCH):
            self._peers[number % 2].send_multipart(odd.frames())
        for peer in self._peers:
            peer.send(_LAST)
            assert self.listener.ends.acquire(timeout=60), "the listener's thread takes nothing"
            self._drop_answers(peer)
        assert self.listener.broken == []
        assert self.holds.take_renewed() <= {1, 2, 3}
        self.holds.take_orders(StepOrders(INCARNATION, revoked=[2, 3], dropped=[1]))
        assert Counter(self.holds._sent) == Counter(_NAMES[1:])
        self.holds.take_sent()
        kept = {name: v for name, v in vars(self.holds).items() if isinstance(v, dict | set | list)}
        assert not any(kept.values()), kept
        assert len(self.listener._digests._waiting) <= 64

    def _drop_answers(self, peer: zmq.Socket[bytes]) -> None:
        while peer.poll(0):
            peer.recv_multipart()

    def close(self) -> None:
        self._context.destroy(linger=0)
        self.listener.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
