"""What the scheduler half tells the worker half in each step, and what it hears from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from connector.core.offer import Address, HoldId
from connector.core.pairing import Plan


class LoadOrder(NamedTuple):
    """Read one request's blocks.

    Args:
        request_id: vLLM's.
        transfer_id: that both legs share.
        address: of the producer.
        hold: the producer's; None if it cannot be asked about it.
        plan: which block goes where.
        waits: whether vLLM waits for a report; otherwise the step waits for the load.
    """

    request_id: str
    transfer_id: str
    address: Address
    hold: HoldId | None
    plan: Plan
    waits: bool

    @property
    def share(self) -> Share:
        """What names the hold to the decode legs that share it."""
        return Share(self.transfer_id, self.address, self.hold)


class Share(NamedTuple):
    """Names a hold to the decode legs that share it.

    Args:
        transfer_id: that all legs share.
        address: of the producer.
        hold: the producer's; None if it cannot be asked about it.
    """

    transfer_id: str
    address: Address
    hold: HoldId | None


class KeepOrder(NamedTuple):
    """Keep a hold for one decode leg until this one releases it.

    Args:
        request_id: vLLM's, of the leg.
        share: of the hold.
        lease_s: how long it lasts from each renewal on; 0 if it cannot be renewed.
        is_sample: whether the leg is one of several samples, so that more may come.
    """

    request_id: str
    share: Share
    lease_s: float
    is_sample: bool = False


class ReleaseOrder(NamedTuple):
    """One decode leg will not read (any more).

    Args:
        request_id: vLLM's, of the leg.
        share: of the hold.
    """

    request_id: str
    share: Share


class ExpectedHold(NamedTuple):
    """A request of the producer whose blocks will be handed over when it ends."""

    request_id: str
    transfer_id: str
    number: int


@dataclass
class StepOrders(KVConnectorMetadata):
    """Everything for one step; a producer fills one half of it and a consumer the other.

    Args:
        incarnation: of the producer's scheduler, which its ranks tell to peers.
        expected: holds that may be asked about from now on.
        offered: numbers of holds whose blocks are handed over.
        revoked: numbers of holds whose blocks are not held any longer.
        dropped: numbers of holds whose requests ended without handing anything over.
        settles: whether a hand-off may end with this step, so that the device has to be quiescent
            before its output is used.
        kept: holds to keep alive from now on.
        loads: to start.
        refused: request ids of loads that cannot even start.
        releases: to send.
    """

    incarnation: str = ""
    expected: list[ExpectedHold] = field(default_factory=list)
    offered: list[int] = field(default_factory=list)
    revoked: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    settles: bool = False
    kept: list[KeepOrder] = field(default_factory=list)
    loads: list[LoadOrder] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    releases: list[ReleaseOrder] = field(default_factory=list)


@dataclass
class Renewals(KVConnectorWorkerMetadata):
    """Holds of which a producer's ranks were asked for more time, by number.

    It is enough that one rank was asked.
    """

    numbers: set[int]

    def aggregate(self, other: KVConnectorWorkerMetadata) -> Renewals:
        assert isinstance(other, Renewals)
        return Renewals(self.numbers | other.numbers)
