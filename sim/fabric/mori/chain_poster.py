"""Posting work requests chain after chain, each to its queue pair.

A chain that finds no room waits for it. What was posted before a refusal stays posted, and lands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.fabric.memory import MemoryRegion
from sim.fabric.mori import messages
from sim.fabric.mori.endpoint import Endpoint, Transfer
from sim.fabric.mori.plan import ChainPlan, chains
from sim.fabric.verdicts import PostItem, PostPart, refuse
from sim.fabric.work import Operation, RemoteRegion, Segments, WorkRequestChain
from sim.verdict import Delay, Deliver, Fail

if TYPE_CHECKING:
    from sim.fabric.mori.backend import RdmaBackend


@dataclass(frozen=True, slots=True)
class Call:
    """What all work requests of one call have in common."""

    operation: Operation
    local: MemoryRegion
    remote: RemoteRegion
    uid: int
    transfer: Transfer


class ChainPoster:
    """Posts to the queue pairs of ``endpoints``, in the task that calls."""

    def __init__(self, backend: RdmaBackend, endpoints: list[Endpoint]) -> None:
        self._backend = backend
        self._endpoints = endpoints

    def post(
        self, call: Call, segments: Segments, post_batch_size: int, overhead_ns: int
    ) -> str | None:
        """Post all of ``segments``; returns why the rest was not posted, or None."""
        profile, kernel = self._backend.fabric.profile, self._backend.kernel
        depth = self._endpoints[0].queue_pair.send_queue.limit
        width = len(self._endpoints)
        plans = chains(segments.work_requests, width, call.uid % width, post_batch_size, depth)
        for plan in plans:
            count = plan.end - plan.begin
            kernel.sleep(overhead_ns + profile.post_ns + count * profile.work_request_ns)
            overhead_ns = 0
            chain = _chain(call, segments, plan)
            error = self._post_chain(plan, chain)
            if error is not None:
                self._backend.fabric.ended(chain, "REFUSED")
                return error
        return None

    def _post_chain(self, plan: ChainPlan, chain: WorkRequestChain) -> str | None:
        endpoint = self._endpoints[plan.queue_pair]
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
        endpoint = self._endpoints[number]
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
            self._endpoints[number].queue_pair.send_queue,
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


def _chain(call: Call, segments: Segments, plan: ChainPlan) -> WorkRequestChain:
    whole = plan.begin == 0 and plan.end == segments.work_requests
    return WorkRequestChain(
        call.operation,
        segments if whole else segments.slice(plan.begin, plan.end),
        call.local,
        call.remote,
        call.uid,
        call.transfer,
        plan.signaled,
        plan.credit,
    )
