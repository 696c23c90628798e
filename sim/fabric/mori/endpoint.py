"""A queue pair as the library manages it: its ledger of transfers and its health."""

from __future__ import annotations

from dataclasses import dataclass

from sim.fabric.mori.enums import StatusCode
from sim.fabric.mori.status import TransferStatus
from sim.fabric.queue_pair import QueuePair
from sim.fabric.work import WorkRequestChain


@dataclass(eq=False, slots=True)
class Transfer:
    """One call under way; it succeeds when all its work requests are accounted for."""

    status: TransferStatus
    remaining: int

    def account(self, work_requests: int) -> None:
        """So many more work requests are done."""
        self.remaining -= work_requests
        if self.remaining == 0:
            self.status.Update(StatusCode.SUCCESS, "success")


class Endpoint:
    """Keyed by remote engine and shared by all sessions with it; never rebuilt.

    ``degraded``: every further call is refused, and ``by_event`` says that an asynchronous event
    did it. ``failed``: sessions on it are not alive.
    """

    def __init__(self, queue_pair: QueuePair, remote_key: str) -> None:
        self.queue_pair = queue_pair
        self.remote_key = remote_key
        self.degraded = False
        self.by_event = False
        self.failed = False
        self._ledger: dict[WorkRequestChain, None] = {}

    def open_record(self, chain: WorkRequestChain) -> None:
        """``chain`` is about to be posted."""
        if chain.signaled:
            self._ledger[chain] = None

    def close_record(self, chain: WorkRequestChain) -> Transfer | None:
        """The completion of ``chain`` was reaped; None when its record was closed before."""
        self.queue_pair.send_queue.give_back(chain.credit)
        if chain not in self._ledger:
            return None
        del self._ledger[chain]
        transfer: Transfer = chain.context
        return transfer

    def fail_all(self, message: str) -> None:
        """Close every record with an error."""
        for chain in self._ledger:
            chain.context.status.Update(StatusCode.ERR_RDMA_OP, message)
            self.queue_pair.fabric.ended(chain, "LOST")
        self._ledger.clear()
