"""What there is at one moment in the model of the protocol (`protocol_model`), and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from connector.core.hold import HoldEvent, HoldState, LeaseState
from connector.core.load import LoadState
from connector.core.request import RequestState
from connector.core.tables import Symbol


class Kind(Symbol):
    """Messages between the engines, the router's hand-off included."""

    OFFER = auto()
    HELLO = auto()
    WELCOME = auto()
    ASK = auto()
    HELD = auto()
    GONE = auto()
    RELEASE = auto()
    RENEW = auto()


class Message(NamedTuple):
    """One message; ``incarnation`` is the producer's that it is about or comes from, ``number``
    the hold's that it is about."""

    kind: Kind
    rank: int = 0
    incarnation: int = 0
    number: int = 0

    @property
    def key(self) -> tuple[int, int, int, int]:
        return (self.kind.value, self.rank, self.incarnation, self.number)


class Read(Symbol):
    """The reads of one consumer rank, taken together."""

    NONE = auto()
    IN_FLIGHT = auto()
    CLEAN = auto()
    """Landed while the producer held the blocks."""
    FOREIGN = auto()
    """Landed when they were no longer held."""
    ERROR = auto()


class Reader(Symbol):
    """The second request's reader, as a rank of the producer sees it."""

    NONE = auto()
    WAITING = auto()
    READING = auto()
    DONE = auto()


class Sibling(Symbol):
    """Another decode leg of the first request on the same consumer, as a rank sees it."""

    NONE = auto()
    READING = auto()
    """It may read; its rank's release waits for it."""
    UNCOUNTED = auto()
    """It may read, and its rank does not count it: a planted defect."""
    DONE = auto()


class World(NamedTuple):
    """Everything at one moment. What is the producer's is about the request that it serves now."""

    lease: LeaseState | None = None
    is_due: bool = False
    """Whether the lease's time is over."""
    renewals: tuple[int | None, ...] = ()
    """Numbers of renewed holds that ranks report."""
    number: int = 0
    readers: tuple[Reader, ...] = ()
    refused: tuple[bool, ...] = ()
    """Ranks that have refused a release of an earlier start; counted with a planted defect only."""
    dropped: bool = False
    freed: bool = False
    holds: tuple[HoldState, ...] = ()
    to_ranks: tuple[tuple[HoldEvent, ...], ...] = ()
    sent: tuple[bool, ...] = ()
    incarnation: int = 0
    producer_up: bool = True
    net: tuple[Message, ...] = ()
    lost: frozenset[Kind] = frozenset()
    repeated: frozenset[Kind] = frozenset()
    request: RequestState | None = None
    loads: tuple[LoadState | None, ...] = ()
    reads: tuple[Read, ...] = ()
    repeated_reads: tuple[bool, ...] = ()
    stragglers: tuple[bool, ...] = ()
    """Whether a read that was given up is under way beside the one that was posted after it."""
    reported: tuple[bool | None, ...] = ()
    consumer_up: bool = True
    used: bool = False
    asked_again: bool = False
    siblings: tuple[Sibling, ...] = ()
    """Of each rank of the consumer."""
    released: tuple[bool, ...] = ()
    """Whether the leg that is modelled in full is done with the hold, by rank."""

    @property
    def is_first(self) -> bool:
        """Whether the producer serves, or has served last, the first request."""
        return self.incarnation == 0 and not self.has_second

    @property
    def has_second(self) -> bool:
        """Whether the second request has come."""
        return any(reader is not Reader.NONE for reader in self.readers)


class Defect(Enum):
    """What may be planted that is no wrong move of a table."""

    NO_VALIDATION = auto()
    """Reads count when they have succeeded."""
    RENEWAL_COUNTED_EARLY = auto()
    """A rank takes a hold that it has heard a renewal of for held, whatever its scheduler says."""
    RENEWAL_OF_ANY_NUMBER = auto()
    """The scheduler does not look at which hold a renewal is of."""
    STALE_RELEASE = auto()
    """A rank takes a release of an earlier start's hold for one of its own."""
    STALE_QUESTION = auto()
    STALE_RENEWAL = auto()
    REPEATED_RELEASE = auto()
    """A rank refuses a release of an earlier start once; a repetition counts as one of its own when
    another rank is done."""
    FIRST_LEG_RELEASES = auto()
    """A rank does not look whether other legs share the hold."""


@dataclass(frozen=True)
class Limits:
    """What may happen in a run besides the ordinary."""

    ranks: int = 1
    max_faults: int = 0
    """Messages lost and messages repeated, together."""
    kinds: frozenset[Kind] = frozenset(Kind)
    """What may be lost and repeated; each kind once."""
    crashes: bool = True
    second_request: bool = True
    renewing_ranks: int = 2
    repeating_ranks: int = 1
    """That may read once more."""
    early_success: bool = False
    """Whether success of reads may be reported before their bytes are there."""
    verifies: bool = False
    """Whether digests are compared."""
    sibling: bool = False
    """Whether another leg may come."""
    defect: Defect | None = None


class Broken(AssertionError):
    """An invariant does not hold."""


def start(limits: Limits) -> World:
    n = limits.ranks
    return World(
        holds=(HoldState.EXPECTED,) * n,
        to_ranks=((),) * n,
        renewals=(None,) * n,
        readers=(Reader.NONE,) * n,
        refused=(False,) * n,
        sent=(False,) * n,
        loads=(None,) * n,
        reads=(Read.NONE,) * n,
        repeated_reads=(False,) * n,
        stragglers=(False,) * n,
        reported=(None,) * n,
        siblings=(Sibling.NONE,) * n,
        released=(False,) * n,
    )


def at_rest(world: World) -> bool:
    """Nothing is held, waited for, in flight or unread, on any side."""
    no_hold = all(hold is HoldState.GONE for hold in world.holds)
    consumer = world.request in (None, RequestState.OVER)
    is_read = any(reader in (Reader.WAITING, Reader.READING) for reader in world.readers)
    is_read |= is_shared(world)
    no_orders = not any(world.to_ranks) and not any(n is not None for n in world.renewals)
    producer = world.producer_up and world.freed and no_hold and no_orders
    return producer and consumer and not is_read and not world.net


def is_shared(world: World) -> bool:
    """Whether another leg may be reading."""
    return any(leg in (Sibling.READING, Sibling.UNCOUNTED) for leg in world.siblings)


def send(world: World, message: Message) -> World:
    return world._replace(net=tuple(sorted((*world.net, message), key=lambda m: m.key)))


def put(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)
