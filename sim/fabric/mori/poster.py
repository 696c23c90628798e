"""Posting: the part of a call that runs in the caller's thread, without the GIL.

Chain after chain is posted or refused before the call returns; a chain that finds no room waits
for it. What was posted before a refusal stays posted, and lands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.fabric.memory import MemoryRegion
from sim.fabric.mori import messages
from sim.fabric.mori.config import DEFAULT_SEGMENTS_PER_WORK_REQUEST
from sim.fabric.mori.endpoint import Endpoint, Transfer
from sim.fabric.mori.enums import StatusCode
from sim.fabric.mori.plan import ChainPlan, Items, chains, too_long
from sim.fabric.mori.status import TransferStatus
from sim.fabric.verdicts import PostItem, PostPart, refuse
from sim.fabric.work import Operation, RemoteRegion, Segments, WorkRequestChain
from sim.verdict import Delay, Deliver, Fail

if TYPE_CHECKING:
    from sim.fabric.mori.backend import RdmaBackend


class Poster:
    """Posts the calls of one session."""

    def __init__(
        self,
        backend: RdmaBackend,
        endpoints: list[Endpoint],
        local: MemoryRegion,
        remote: RemoteRegion,
    ) -> None:
        self._backend = backend
        self.endpoints = endpoints
        self._local = local
        self._remote = remote

    def post(self, operation: Operation, items: Items, uid: int, status: TransferStatus) -> None:
        """Post all of ``items`` and leave the outcome in ``status``."""
        reason = items.rejection(self._local.size, self._remote.size)
        if reason is not None:
            status.Update(StatusCode.ERR_INVALID_ARGS, reason)
            return
        if not len(items.sizes):
            status.Update(StatusCode.SUCCESS, "")
            return
        config = self._backend.config
        segments = items.merged(config.max_msg_sge or DEFAULT_SEGMENTS_PER_WORK_REQUEST)
        reason = too_long(segments, self._backend.fabric.profile.max_message_bytes)
        if reason is not None:
            status.Update(StatusCode.ERR_INVALID_ARGS, reason)
            return
        status.SetCode(StatusCode.IN_PROGRESS)
        self._post_segments(operation, segments, uid, status)

    def _post_segments(
        self, operation: Operation, segments: Segments, uid: int, status: TransferStatus
    ) -> None:
        profile, kernel = self._backend.fabric.profile, self._backend.kernel
        transfer = Transfer(status, segments.work_requests)
        extra_ns = profile.call_ns
        for plan in self._chains(segments.work_requests, uid):
            count = plan.end - plan.begin
            kernel.sleep(extra_ns + profile.post_ns + count * profile.work_request_ns)
            extra_ns = 0
            error = self._post_chain(plan, self._chain(operation, segments, uid, transfer, plan))
            if error is not None:
                status.Update(StatusCode.ERR_RDMA_OP, error)
                return

    def _chains(self, work_requests: int, uid: int) -> list[ChainPlan]:
        depth = self.endpoints[0].queue_pair.send_queue.limit
        width = len(self.endpoints)
        batch = self._backend.config.post_batch_size
        return list(chains(work_requests, width, uid % width, batch, depth))

    def _chain(
        self,
        operation: Operation,
        segments: Segments,
        uid: int,
        transfer: Transfer,
        plan: ChainPlan,
    ) -> WorkRequestChain:
        whole = plan.begin == 0 and plan.end == segments.work_requests
        return WorkRequestChain(
            operation,
            segments if whole else segments.slice(plan.begin, plan.end),
            self._local,
            self._remote,
            uid,
            transfer,
            plan.signaled,
            plan.credit,
        )

    def _post_chain(self, plan: ChainPlan, chain: WorkRequestChain) -> str | None:
        endpoint = self.endpoints[plan.queue_pair]
        if endpoint.degraded:
            return messages.DEGRADED
        queue_pair = endpoint.queue_pair
        item = PostItem(chain, queue_pair.pair, queue_pair.number)
        match self._backend.fabric.verdicts.ask(item):
            case Deliver():
                return self._reserve_and_post(plan.queue_pair, chain)
            case Delay(by_ns=by_ns):
                self._backend.kernel.sleep(by_ns)
                return self._reserve_and_post(plan.queue_pair, chain)
            case Fail(code="SQ_FULL", message=message):
                self._backend.kernel.sleep(self._backend.settings.send_queue_backoff_ns)
                full = queue_pair.send_queue.limit
                return message or self._send_queue_full(plan.queue_pair, chain, full)
            case Fail(code="ENOMEM", message=message):
                return message or messages.post_refused(0, chain.count)
            case PostPart(posted=posted):
                return self._post_part(endpoint, chain, posted)
            case verdict:
                refuse(item, verdict)

    def _reserve_and_post(self, number: int, chain: WorkRequestChain) -> str | None:
        endpoint = self.endpoints[number]
        queue = endpoint.queue_pair.send_queue
        backoff_ns = self._backend.settings.send_queue_backoff_ns
        if not queue.wait_for(chain.count, backoff_ns, what="room in a send queue"):
            return self._send_queue_full(number, chain)
        if endpoint.by_event:  # it happened while this call waited
            queue.give_back(chain.count)
            return messages.FAILED_BY_EVENT
        endpoint.open_record(chain)
        self._backend.fabric.record("posted", chain, endpoint.queue_pair)
        endpoint.queue_pair.post(chain)
        return None

    def _send_queue_full(
        self, number: int, chain: WorkRequestChain, depth: int | None = None
    ) -> str:
        return messages.send_queue_full(
            number,
            self.endpoints[number].queue_pair.send_queue,
            chain.count,
            self._backend.settings,
            self._backend.config,
            depth=depth,
        )

    def _post_part(self, endpoint: Endpoint, chain: WorkRequestChain, posted: int) -> str:
        """The unsignaled part runs, and nothing will ever tell of it: the endpoint is lost."""
        if posted:
            endpoint.degraded = True
            endpoint.queue_pair.send_queue.depth += posted
            whole, chain.segments = chain.segments, chain.segments.slice(0, posted)
            chain.signaled = False
            endpoint.queue_pair.post(chain)
            return messages.post_refused(posted, whole.work_requests)
        return messages.post_refused(0, chain.count)
