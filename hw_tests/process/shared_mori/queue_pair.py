"""A queue pair: a connection to a peer's engine, and a thread that carries out what is posted."""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hw_tests.process.shared_mori.control import ControlClient
from hw_tests.process.shared_mori.gate import GATE
from hw_tests.process.shared_mori.memory import Segment
from hw_tests.process.shared_mori.status import TransferStatus
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.enums import PeerFailureReason, StatusCode
from sim.fabric.mori.failures import PeerFailureEvent, PeerFailures

RETRY_BUDGET_S = 0.537
"""The library's default: eight tries of 67 ms."""
FLUSHED = "Work Request Flushed Error"
REMOTE_ACCESS = "remote access error Hint: check the remote registration, the rkey and the range"
RETRIES_EXCEEDED = "transport retry counter exceeded Hint: check that the peer is alive"
_DEVICE = "shared0"


@dataclass(frozen=True)
class RemoteMemory:
    """A peer's memory as it is mapped here, and the byte that says that it is registered."""

    segment: Segment
    offset: int
    valid: Segment
    valid_offset: int

    @property
    def address(self) -> int:
        return self.segment.address + self.offset

    @property
    def is_registered(self) -> bool:
        return self.valid.mapping[self.valid_offset] == 1


class Piece(NamedTuple):
    """Bytes that are copied at once: addresses in this process, and how many."""

    to: int
    source: int
    size: int


class Transfer(NamedTuple):
    """What was posted together."""

    remote: RemoteMemory
    pieces: Sequence[Piece]
    status: TransferStatus


class QueuePair:
    """To one peer; transfers are carried out in the order in which they are posted.

    Args:
        peer: to connect to.
        timeout_s: for its answers.
        failures: where its death is told.
        number: of the queue pair.

    Raises:
        RuntimeError: the peer cannot be reached.
    """

    def __init__(
        self, peer: EngineDesc, timeout_s: float, failures: PeerFailures, number: int
    ) -> None:
        self._peer = peer
        self._control = ControlClient(peer.host, peer.port, timeout_s)
        self._failures = failures
        self._number = number
        self._memories: dict[int, RemoteMemory] = {}
        self._posted: queue.SimpleQueue[Transfer | None] = queue.SimpleQueue()
        self._is_closing = False
        self._is_broken = False
        self.is_alive = True
        self._thread = threading.Thread(target=self._run, daemon=True, name="mori-completion")
        self._thread.start()

    def map(self, memory: MemoryDesc) -> RemoteMemory:
        """The peer's memory; asked for once, and never again.

        Raises:
            RuntimeError: the peer does not answer, or has no such memory.
        """
        if memory.id not in self._memories:
            told = self._control.ask(memory.id)
            got = told[0].size if told is not None else 0
            if told is None or got != memory.size:
                raise RuntimeError(
                    "RdmaBackend::CreateSession: remote MR size mismatch for engine "
                    f"{self._peer.key}: expected {memory.size}, got={got}"
                )
            place, valid = told
            self._memories[memory.id] = RemoteMemory(
                Segment.of_process(place), place.offset, Segment.of_process(valid), valid.offset
            )
        return self._memories[memory.id]

    def post(self, transfer: Transfer) -> None:
        transfer.status.SetCode(StatusCode.IN_PROGRESS)
        self._posted.put(transfer)

    def close(self) -> None:
        """No byte moves after this; what is under way stays so for ever."""
        self._is_closing = True
        self._posted.put(None)
        self._thread.join()
        self._control.close()

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            transfer = self._posted.get()
            if transfer is None or self._is_closing:
                return
            trouble = FLUSHED if self._is_broken else self._carry(transfer)
            if self._is_closing:
                return
            self._is_broken = self._is_broken or bool(trouble)
            code = StatusCode.ERR_RDMA_OP if trouble else StatusCode.SUCCESS
            transfer.status.Update(code, trouble or "success")

    def _carry(self, transfer: Transfer) -> str:
        """Copy; the gate is behind the first piece. Returns what went wrong, or nothing."""
        for number, piece in enumerate(_halved(transfer.pieces)):
            is_through = number == 0 or GATE.passes(self._is_over)
            if self._is_closing:
                return ""
            if not is_through or self._control.is_gone():
                return self._give_up()
            if not transfer.remote.is_registered:
                return REMOTE_ACCESS
            ctypes.memmove(piece.to, piece.source, piece.size)
        return ""

    def _is_over(self) -> bool:
        return self._is_closing or self._control.is_gone()

    def _give_up(self) -> str:
        """As long as the network card tries again."""
        deadline = time.monotonic() + RETRY_BUDGET_S
        while time.monotonic() < deadline and not self._is_closing:
            time.sleep(0.01)
        self.is_alive = False
        reason = PeerFailureReason.PEER_UNREACHABLE
        detail = "the peer did not acknowledge within the retry budget"
        self._failures.add(
            PeerFailureEvent(self._peer.key, reason, self._number, 1, _DEVICE, detail)
        )
        return RETRIES_EXCEEDED


def _halved(pieces: Sequence[Piece]) -> list[Piece]:
    """The same bytes in at least two pieces, if there are two."""
    if len(pieces) != 1 or pieces[0].size < 2:
        return list(pieces)
    to, source, size = pieces[0]
    half = size // 2
    return [Piece(to, source, half), Piece(to + half, source + half, size - half)]
