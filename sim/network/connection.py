"""Two ends and two lanes: an established connection, as TCP gives it to a message protocol."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sim.errors import TestbedError
from sim.kernel import Node, Process
from sim.network.message import Frames, MessageInFlight, digest_of, size_of
from sim.verdict import Corrupt, Delay, Deliver, Drop, Duplicate

if TYPE_CHECKING:
    from sim.network.network import Network


def _ignore(*_args: object) -> None:
    """What happens at an end that nobody has taken over yet."""


class Lane:
    """One direction of a connection: whatever is put in arrives in that order.

    The events of a lane only say "take the next", so events of one instant may run in any
    order. While the way is cut, arrivals are owed; they come one latency after it is healed.
    What is held up holds up everything behind it.
    """

    def __init__(self, network: Network, source: Node, target: Node) -> None:
        self._network = network
        self.source = source
        self.target = target
        self._arrivals: deque[Callable[[], None]] = deque()
        self._owed = 0
        self._held_up_until_ns = 0

    def carry(self, arrival: Callable[[], None], *, held_up_ns: int = 0) -> None:
        """Call ``arrival`` at the target when its turn has come, ``held_up_ns`` late at least."""
        kernel = self._network.kernel
        due_ns = kernel.now_ns + self._latency_ns() + held_up_ns
        due_ns = self._held_up_until_ns = max(due_ns, self._held_up_until_ns)
        self._arrivals.append(arrival)
        kernel.call_later(due_ns - kernel.now_ns, self._take_next)

    def resume(self) -> None:
        """The way is free again."""
        owed, self._owed = self._owed, 0
        for _ in range(owed):
            self._network.kernel.call_later(self._latency_ns(), self._take_next)

    def _latency_ns(self) -> int:
        return self._network.latency_between(self.source, self.target)

    def _take_next(self) -> None:
        if self._network.is_cut(self.source, self.target):
            self._owed += 1
            self._network.hold(self)
        else:
            self._arrivals.popleft()()


class _Letter(NamedTuple):
    """A message together with what the log says of it."""

    frames: Frames
    size: int
    digest: str

    @classmethod
    def of(cls, frames: Frames) -> _Letter:
        return cls(frames, size_of(frames), digest_of(frames))


class Endpoint:
    """One end of a connection, owned by a process.

    The owner sets ``on_message(frames)``, ``on_close()`` (the other end closed or died) and
    ``on_writable()`` (the other end has acknowledged enough to send again).
    """

    def __init__(self, network: Network, process: Process, port: int, service: int | str) -> None:
        self.network = network
        self.process = process
        self.port = port
        self.service = service
        self.closed = False
        self.on_message: Callable[[Frames], None] = _ignore
        self.on_close: Callable[[], None] = _ignore
        self.on_writable: Callable[[], None] = _ignore
        self.peer: Endpoint
        self.lane: Lane
        self._unacknowledged = 0

    @property
    def writable(self) -> bool:
        """Whether the buffers of the operating systems on the way have room."""
        return self._unacknowledged < self.network.window_bytes

    def send(self, frames: Frames, kind: str = "message") -> None:
        """Put a message on its way, or do with it what the rules of the network say."""
        assert not self.closed, "the owner of a closed endpoint has to notice on_close"
        letter = _Letter.of(frames)
        self._record("message-sent", letter, what=kind)
        if isinstance(self.service, str):  # inside one node nothing gets lost
            self._enqueue(letter)
            return
        here, there = self.process, self.peer.process
        item = MessageInFlight(
            kind,
            here.node,
            self.port,
            there.node,
            self.peer.port,
            tuple(frames),
            self.network.kernel.now_ns,
            here.owner,
            there.owner,
        )
        verdict = self.network.verdicts.ask(item)
        self.network.kernel.own(self._obey, verdict, letter)

    def acknowledge(self, frames: Frames) -> None:
        """The owner has taken a received message over; its sender may send as much again."""
        sender = self.peer
        was_writable = sender.writable
        sender._unacknowledged -= size_of(frames)
        if not was_writable and sender.writable and not sender.closed:
            sender.on_writable()

    def close(self) -> None:
        """Everything sent still arrives, then the other end learns of the close."""
        if self._forget():
            self.lane.carry(self.peer._peer_closed)

    def _peer_closed(self) -> None:
        if self._forget():
            self.on_close()

    def _forget(self) -> bool:
        if self.closed:
            return False
        self.closed = True
        self.network.forget(self)
        return True

    def _obey(self, verdict: object, letter: _Letter) -> None:
        match verdict:
            case Deliver():
                self._enqueue(letter)
            case Delay(by_ns=by_ns):
                self._enqueue(letter, held_up_ns=by_ns)
            case Drop():
                self._record("message-dropped", letter, reason="verdict")
            case Duplicate(after_ns=after_ns):
                self._enqueue(letter)
                self.network.kernel.call_later(after_ns, self._enqueue, letter)
            case Corrupt(change=change):
                self._enqueue(_Letter.of(list(change(list(letter.frames)))))
            case _:
                raise TestbedError(
                    f"the network cannot honour {verdict!r}; it knows Deliver, Delay, Drop, "
                    "Duplicate and Corrupt"
                )

    def _enqueue(self, letter: _Letter, *, held_up_ns: int = 0) -> None:
        if self.closed:  # a copy, after the connection has gone
            self._record("message-dropped", letter, reason="connection-closed")
            return
        self._unacknowledged += letter.size
        self.lane.carry(lambda: self._arrive(letter), held_up_ns=held_up_ns)

    def _arrive(self, letter: _Letter) -> None:
        if self.peer.closed:
            self._record("message-dropped", letter, reason="connection-closed")
            return
        self._record("message-delivered", letter)
        self.peer.on_message(letter.frames)

    def _record(self, event: str, letter: _Letter, **fields: str) -> None:
        self.network.kernel.record(
            event,
            source=self.process.path,
            target=self.peer.process.path,
            port=self.service,
            bytes=letter.size,
            digest=letter.digest,
            **fields,
        )
