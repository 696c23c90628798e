"""What is posted to a queue pair and what comes back: work requests and completions."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.fabric.memory import MemoryRegion, Offsets

_NO_REGION = MemoryRegion(0, 0, key=0, owner="", node="")


class Operation(enum.StrEnum):
    """READ fills the initiator's memory and WRITE the target's; SEND fills a posted receive."""

    READ = "read"
    WRITE = "write"
    SEND = "send"


class CompletionStatus(enum.IntEnum):
    """Status of a work completion: number of the verbs interface, and its text."""

    text: str

    def __new__(cls, value: int, text: str) -> CompletionStatus:
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    SUCCESS = 0, "success"
    LOC_LEN = 1, "local length error"
    LOC_QP_OP = 2, "local QP operation error"
    LOC_PROT = 4, "local protection error"
    WR_FLUSH = 5, "Work Request Flushed Error"
    MW_BIND = 6, "memory management operation error"
    BAD_RESP = 7, "bad response error"
    LOC_ACCESS = 8, "local access error"
    REM_INV_REQ = 9, "remote invalid request error"
    REM_ACCESS = 10, "remote access error"
    REM_OP = 11, "remote operation error"
    RETRY_EXC = 12, "transport retry counter exceeded"
    RNR_RETRY_EXC = 13, "RNR retry counter exceeded"


@dataclass(frozen=True, slots=True)
class Segments:
    """Bytes to move, as columns: segment i is ``sizes[i]`` bytes between two offsets.

    Work request w consists of the segments from ``first_segments[w]`` up to the next work
    request's first. Offsets count from the start of the two memory regions.
    """

    local_offsets: Offsets
    remote_offsets: Offsets
    sizes: Offsets
    first_segments: Offsets

    @property
    def work_requests(self) -> int:
        """How many work requests the segments form."""
        return len(self.first_segments)

    @property
    def total_bytes(self) -> int:
        """Payload of all segments."""
        return int(self.sizes.sum())

    def slice(self, begin: int, end: int) -> Segments:
        """The work requests from ``begin`` up to but not including ``end``."""
        bounds = np.append(self.first_segments, len(self.sizes))
        first, last = int(bounds[begin]), int(bounds[end])
        return Segments(
            self.local_offsets[first:last],
            self.remote_offsets[first:last],
            self.sizes[first:last],
            self.first_segments[begin:end] - first,
        )

    def only(self, work_requests: tuple[int, ...]) -> Segments:
        """Only the named work requests, in ascending order."""
        parts = [self.slice(w, w + 1) for w in sorted(work_requests)]
        firsts = np.cumsum([0, *(len(part.sizes) for part in parts)])[:-1]
        return Segments(
            _joined([part.local_offsets for part in parts]),
            _joined([part.remote_offsets for part in parts]),
            _joined([part.sizes for part in parts]),
            firsts.astype(np.int64),
        )


def _joined(columns: list[Offsets]) -> Offsets:
    return np.concatenate(columns) if columns else np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RemoteRegion:
    """What an initiator knows of a target's memory region; stale when the target restarted."""

    key: int
    size: int


@dataclass(eq=False, slots=True)
class WorkRequestChain:
    """Work requests posted by one call, linked in a chain; the unit the fabric moves.

    Only the last one can be ``signaled``: then it produces a completion, which stands for
    ``credit`` work requests of the library's call. ``context`` belongs to whoever posted it.
    """

    operation: Operation
    segments: Segments
    local: MemoryRegion
    remote: RemoteRegion
    transfer_uid: int
    context: Any
    signaled: bool = True
    credit: int = 0
    posted_ns: int = 0
    verdict: Any = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Number of work requests."""
        return self.segments.work_requests


@dataclass(eq=False, slots=True)
class Send(WorkRequestChain):
    """One signaled SEND, whose few bytes lie in the work request itself and in no region."""

    message: bytes = b""

    @classmethod
    def of(cls, message: bytes, transfer_uid: int) -> Send:
        """A SEND that nobody's transfer status depends on."""
        nowhere = np.zeros(1, np.int64)
        segments = Segments(nowhere, nowhere, np.array([len(message)]), nowhere)
        return cls(
            Operation.SEND,
            segments,
            _NO_REGION,
            RemoteRegion(0, 0),
            transfer_uid,
            context=None,
            credit=1,
            message=message,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """A work completion. ``is_tail``: of the chain's last work request, the signaled one."""

    chain: WorkRequestChain
    status: CompletionStatus
    queue_pair: int
    is_tail: bool = True
    message: str = ""

    @property
    def text(self) -> str:
        """What the verbs library calls the status, unless a rule said otherwise."""
        return self.message or self.status.text


@dataclass(frozen=True, slots=True)
class Received:
    """A SEND of the peer has filled a posted receive of queue pair number ``queue_pair``."""

    message: bytes
    queue_pair: int


@dataclass(frozen=True, slots=True)
class AsyncEvent:
    """What a driver reports out of turn: name without its prefix, and the queue pair it is about.

    ``queue_pair`` is a ``QueuePair``, or None when the event is about more than one.
    """

    name: str
    queue_pair: Any = None


@dataclass(frozen=True, slots=True)
class Landing:
    """Bytes of one chain about to be written, or just written, at their destination.

    ``initiator`` and ``target`` are engine keys, offsets count from the regions' starts. Copies
    between GPUs have no chain and no queue pair, which is 0 then.
    """

    initiator: str
    target: str
    operation: Operation
    source: MemoryRegion
    source_offsets: Offsets
    destination: MemoryRegion
    destination_offsets: Offsets
    sizes: Offsets
    posted_ns: int
    transfer_uid: int
    queue_pair: int
