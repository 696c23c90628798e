"""The questions a fabric puts to its verdict chain, and the answers that only it understands.

Which of the general answers (sim.verdict) a question honours is said at its class; any other
answer is refused by name. A ``Fail`` names a completion status (``RETRY_EXC``, ...) as its code
unless its question says otherwise; an empty message stands for the status's usual text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sim.errors import TestbedError
from sim.fabric.work import CompletionStatus, Operation, WorkRequestChain
from sim.verdict import Verdict

if TYPE_CHECKING:
    from sim.fabric.copy_stream import Copies


@dataclass(frozen=True, slots=True)
class PeerPair:
    """Who talks to whom: engine keys and machine names of initiator and target."""

    initiator: str
    initiator_node: str
    target: str
    target_node: str


@dataclass(frozen=True, slots=True)
class _ChainItem:
    chain: WorkRequestChain
    pair: PeerPair
    queue_pair: int

    @property
    def operation(self) -> Operation:
        """READ, WRITE or SEND."""
        return self.chain.operation

    @property
    def transfer_uid(self) -> int:
        """The initiator's number for the call that the chain is part of."""
        return self.chain.transfer_uid

    @property
    def count(self) -> int:
        """Number of work requests in the chain."""
        return self.chain.count


class PostItem(_ChainItem):
    """A chain or a SEND is about to be posted. Honours Deliver, Delay, Fail and ``PostPart``.

    ``Delay`` holds the posting thread. ``Fail("SQ_FULL", "")`` is a send queue without room for
    as long as the library waits; ``Fail("ENOMEM", "")`` is a provider that refuses the chain.
    """

    __slots__ = ()


class WorkRequestItem(_ChainItem):
    """A chain has left the wire and is about to land. Honours every general answer, ``LandPart``
    and ``LandLate``.

    Deliver lands all bytes. Delay lands them, and whatever follows on the queue pair, later.
    Drop neither lands nor completes. Corrupt calls ``change`` with the payload, an array of
    bytes that it may alter in place, before it lands. Duplicate lands the same payload a second
    time. Fail lands nothing and completes with an error, which flushes the queue pair.
    """

    __slots__ = ()


class SendItem(_ChainItem):
    """A SEND has left the wire. Honours Deliver, Delay, Drop and Fail.

    Drop neither arrives nor completes.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CompletionItem(_ChainItem):
    """A completion is about to be reported. Honours Deliver, Delay, Drop and Fail.

    After a Fail the bytes have landed, but the queue pair is in error. Dropping every
    completion of a queue pair makes it a silent one.
    """

    status: CompletionStatus


@dataclass(frozen=True, slots=True)
class _CopiesItem:
    copies: Copies
    pair: PeerPair

    @property
    def operation(self) -> Operation:
        """READ or WRITE."""
        return self.copies.operation

    @property
    def transfer_uid(self) -> int:
        """The initiator's number for the call."""
        return self.copies.transfer_uid


class CopyPostItem(_CopiesItem):
    """The GPU copies of a call are about to be enqueued. Honours Deliver, Delay and Fail.

    ``Delay`` holds the calling thread. ``Fail("BAD_STATE", "")`` is a pool without stream or
    event; any other code is a copy that the driver refuses, with the message as its reason.
    """

    __slots__ = ()


class CopyItem(_CopiesItem):
    """The GPU copies of a call are about to land. Honours Deliver, Delay, Drop, Corrupt and Fail.

    Drop is a GPU that hangs: nothing lands, and the stream never goes on. Fail lands nothing;
    its message is the driver's reason, and its code is ignored.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ControlItem:
    """A control-plane exchange: ``kind`` is "register-endpoint" or "ask-memory-region".

    Honours Deliver, Delay, Drop (accepted and never answered) and Fail, whose message becomes
    the text of the library's exception.
    """

    pair: PeerPair
    kind: str


@dataclass(frozen=True, slots=True)
class SessionItem:
    """A session is about to be created. Honours Deliver, Drop (no session, no error) and Fail."""

    pair: PeerPair


@dataclass(frozen=True, slots=True)
class RegistrationItem:
    """Memory is about to be registered. Honours Deliver and Fail (an exception)."""

    engine: str
    node: str
    size: int


@dataclass(frozen=True, slots=True)
class PostPart(Verdict):
    """The provider takes the first ``posted`` work requests of a chain and refuses the rest."""

    posted: int


@dataclass(frozen=True, slots=True)
class LandPart(Verdict):
    """Only the work requests ``landed`` of a chain land; the first missing one has ``code``."""

    landed: tuple[int, ...]
    code: str = "RETRY_EXC"


@dataclass(frozen=True, slots=True)
class LandLate(Verdict):
    """Success is reported in time, and the bytes land ``by_ns`` after they should have."""

    by_ns: int


def completion_status(code: str) -> CompletionStatus:
    """The completion status a rule named."""
    try:
        return CompletionStatus[code]
    except KeyError:
        known = ", ".join(status.name for status in CompletionStatus)
        raise TestbedError(f"a rule failed with {code!r}; a completion can have: {known}") from None


def refuse(item: object, verdict: Verdict) -> NoReturn:
    """A rule gave an answer that makes no sense for the question."""
    raise TestbedError(f"{type(item).__name__} cannot honour the verdict {verdict!r}")
