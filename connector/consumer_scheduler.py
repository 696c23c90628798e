"""The scheduler half of a consumer: takes up offers, pairs blocks, orders loads and releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import (
    get_peer_zmq_from_request_id,
    parse_moriio_zmq_address,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

from connector.core.admission import NOTHING, Answer, promise, span_of
from connector.core.errors import ConnectorError, ForeignOffer, MalformedPayload
from connector.core.groups import GroupKind, TransferGroups
from connector.core.legs import is_sample
from connector.core.load import Cause
from connector.core.offer import Offer, parse_address, parse_hold, parse_offer
from connector.core.pairing import LoadMode, check_remote, plan_read, show_state
from connector.core.request import REQUEST, RequestAction, RequestEvent, RequestState
from connector.core.zeroing import without_destinations
from connector.counters import Counters
from connector.logs import dump, log
from connector.metadata import KeepOrder, LoadOrder, ReleaseOrder, Share, StepOrders
from connector.prompts import prompt_of_request

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

SelectGroups = Callable[[Sequence[list[int]]], Sequence[list[int]]]
"""From the block lists of all groups to those of the transferred ones."""


@dataclass
class _Remote:
    """A request with a remote prefill.

    Args:
        share: of the hold; None if the offer does not tell.
        refusal: why its offer cannot be used.
        local_hit: tokens that vLLM found here when it last looked.
        lacks_state: whether that is all but the last, without a state to go on from.
    """

    state: RequestState
    offer: Offer | None
    share: Share | None
    refusal: str | None
    local_hit: int = 0
    lacks_state: bool = False


_IDLE = StepOrders()  # shared by all idle steps; nobody changes orders that were given out


class ConsumerScheduler:
    """Consumer, scheduler half.

    Args:
        groups: the model's.
        mode: whether requests wait for their load, or the step does.
        tp_size: of this engine.
        counters: of this half.
        select: the transferred ones of all groups' block lists.
    """

    def __init__(
        self,
        groups: TransferGroups,
        mode: LoadMode,
        tp_size: int,
        counters: Counters,
        select: SelectGroups,
    ) -> None:
        self._groups = groups
        self._select = select
        self._manager: KVCacheManager | None = None
        self._mode: LoadMode = mode
        self._tp_size = tp_size
        self._counters = counters
        self._remotes: dict[str, _Remote] = {}
        self._orders: StepOrders | None = None
        self._log = log.bind(role="consumer", half="scheduler")

    # ------------------------------------------------------------- vLLM's hooks

    def on_new_request(self, request: Request) -> None:
        """Have the producer hold the blocks while the request waits and is loaded."""
        remote = self._remote(request)
        if remote is None or remote.share is None:
            return
        name, lease_s = request.request_id, 0.0 if remote.offer is None else remote.offer.lease_s
        order = KeepOrder(name, remote.share, lease_s, is_sample(name))
        self._next_orders().kept.append(order)

    def bind_kv_cache_manager(self, manager: KVCacheManager) -> None:
        self._manager = manager

    def get_num_new_matched_tokens(self, request: Request, local_hit: int) -> Answer:
        remote = self._remote(request)
        if remote is None:
            return NOTHING
        remote.lacks_state = False
        if remote.state is not RequestState.OFFERED:
            return NOTHING
        num_prompt = request.num_prompt_tokens
        remote.local_hit = local_hit
        remote.lacks_state = local_hit == num_prompt - 1 and self._lacks_state(request, local_hit)
        if self._mode == "sync" or remote.lacks_state or remote.refusal is not None:
            self._check_coverage(remote, num_prompt)  # else it can still be refused when it loads
        return promise(
            num_prompt,
            local_hit,
            self._mode,
            is_refused=remote.refusal is not None,
            lacks_state=remote.lacks_state,
        )

    def update_state_after_alloc(
        self, request: Request, blocks: Sequence[list[int]], num_external: int
    ) -> None:
        """Order a load into ``blocks``, or a release if nothing comes from outside.

        Args:
            request: that got blocks.
            blocks: all of its blocks, one list for each transferred group, in transfer order; of no
                concern if nothing comes from outside.
            num_external: tokens that vLLM expects of the load.
        """
        remote = self._remote(request)
        if remote is None:
            return
        is_refused = remote.refusal is not None
        if num_external == 0:
            event = RequestEvent.NO_LOAD
            # Once it is loaded vLLM calls with 0 again, and its state is yet to be shown.
            remote.lacks_state &= remote.state is RequestState.SETTLED
        elif self._mode_of(remote) == "async" or is_refused:
            event = RequestEvent.LOAD
        else:
            event = RequestEvent.LOAD_IN_STEP
        for action in self._advance(request.request_id, remote, event):
            if action is RequestAction.RELEASE:
                self._release(request.request_id, remote)
            elif is_refused:
                self._refuse(request.request_id, remote)
            else:
                self._load(request, remote, blocks, num_external)
        if request.kv_transfer_params is not None:
            request.kv_transfer_params["do_remote_prefill"] = False

    def build_orders(self, scheduler_output: SchedulerOutput) -> StepOrders:
        """This step's orders; keeps vLLM from zeroing what its loads fill."""
        if scheduler_output.scheduled_new_reqs:
            self._show_states(scheduler_output)
        orders, self._orders = self._orders, None
        if orders is None:
            return _IDLE
        if scheduler_output.new_block_ids_to_zero and orders.loads:
            filled = frozenset().union(*(order.plan.destinations for order in orders.loads))
            scheduler_output.new_block_ids_to_zero = without_destinations(
                scheduler_output.new_block_ids_to_zero, filled
            )
        return orders

    def loaded_groups(self, request: Request) -> list[int]:
        """Which transferred groups a load fills, by index; vLLM zeroes new blocks of the others."""
        remote = self._remotes.get(request.request_id)
        if remote is None or not remote.lacks_state:
            return [*range(len(self._groups))]
        return [
            index
            for index, group in enumerate(self._groups.groups)
            if group.kind in (GroupKind.RING, GroupKind.STATE)
        ]

    def request_finished(self, request: Request) -> None:
        """Release the producer of a request that ended before it was allocated."""
        remote = self._remote(request)
        if remote is None:
            return
        for action in self._advance(request.request_id, remote, RequestEvent.ENDED):
            assert action is RequestAction.RELEASE
            self._release(request.request_id, remote)

    def update_connector_output(self, output: KVConnectorOutput) -> None:
        if not output.finished_recving:
            return
        for request_id in sorted(output.finished_recving):
            remote = self._remotes.get(request_id)
            if remote is not None:
                self._advance(request_id, remote, RequestEvent.REPORTED)

    # ---------------------------------------------------------------- internal

    def _remote(self, request: Request) -> _Remote | None:
        """What is known of the request's remote prefill; None if it has none."""
        known = self._remotes.get(request.request_id)
        params = request.kv_transfer_params
        if known is not None or not params or not params.get("do_remote_prefill"):
            return known
        remote = self._take_up(request, params)
        self._remotes[request.request_id] = remote
        return remote

    def _take_up(self, request: Request, params: dict[str, object]) -> _Remote:
        try:
            offer = parse_offer(
                params,
                self._groups,
                prompt=prompt_of_request(request, request.num_prompt_tokens),
                tp_size=self._tp_size,
                embedded=_address_in(request.request_id),
            )
        except ForeignOffer as error:  # the blocks are another request's, which may be reading them
            return _Remote(RequestState.OFFERED, None, None, str(error))
        except ConnectorError as error:
            share = self._share_of(request, params)
            return _Remote(RequestState.OFFERED, None, share, str(error))
        share = Share(offer.transfer_id, offer.address, offer.hold)
        return _Remote(RequestState.OFFERED, offer, share, None)

    def _share_of(self, request: Request, params: dict[str, object]) -> Share | None:
        """Of an offer that cannot be used, if it tells whom to release."""
        transfer_id = params.get("transfer_id")
        try:
            embedded = _address_in(request.request_id)
            address = parse_address(params, tp_size=self._tp_size, embedded=embedded)
        except ConnectorError:
            return None
        try:
            hold = parse_hold(params)  # a retry of the prefill has the same transfer id
        except ConnectorError:
            hold = None
        return Share(transfer_id, address, hold) if isinstance(transfer_id, str) else None

    def _next_orders(self) -> StepOrders:
        """Of the next step; there are none until somebody has something to do."""
        if self._orders is None:
            self._orders = StepOrders()
        return self._orders

    def _lacks_state(self, request: Request, local_hit: int) -> bool:
        """Whether vLLM would fall back to less than ``local_hit`` if nothing were promised.

        It tells the length of the hit and not whether the groups diverge on it, so it is asked for
        what they have in common, as it does itself (v1/core/sched/scheduler.py:1199).
        """
        if self._manager is None or not self._groups.has_state:
            return False
        in_common: int = self._manager.get_computed_blocks(request)[1]
        return in_common < local_hit

    def _mode_of(self, remote: _Remote) -> LoadMode:
        return "async" if remote.lacks_state else self._mode

    def _show_states(self, scheduler_output: SchedulerOutput) -> None:
        """Before the first forward pass of requests whose state was all that they lacked."""
        for new in scheduler_output.scheduled_new_reqs:
            remote = self._remotes.get(new.req_id)
            if remote is not None and remote.lacks_state:
                remote.lacks_state = False
                show_state(self._groups, self._select(new.block_ids), new.num_computed_tokens)

    def _check_coverage(self, remote: _Remote, num_prompt: int) -> None:
        """Find out before anything is promised whether the producer has what is needed."""
        if remote.offer is None:
            return
        num_external = max(num_prompt - 1 - remote.local_hit, int(remote.lacks_state))
        if num_external == 0:
            return
        span = span_of(num_prompt, remote.local_hit, num_external)
        try:
            check_remote(self._groups, remote.offer.blocks, remote.offer.firsts, span)
            remote.refusal = None
        except MalformedPayload as error:
            remote.refusal = str(error)

    def _advance(
        self, request_id: str, remote: _Remote, event: RequestEvent
    ) -> tuple[RequestAction, ...]:
        move = REQUEST(remote.state, event)
        remote.state = move.state
        if move.state in REQUEST.final:
            del self._remotes[request_id]
        return move.actions

    def _load(
        self, request: Request, remote: _Remote, blocks: Sequence[list[int]], num_external: int
    ) -> None:
        offer = remote.offer
        assert offer is not None
        span = span_of(request.num_prompt_tokens, remote.local_hit, num_external)
        mode = self._mode_of(remote)
        try:
            plan = plan_read(self._groups, blocks, offer.blocks, offer.firsts, span, mode)
        except MalformedPayload as error:
            if mode == "sync":
                raise  # nobody waits for a report, and the step must not run on what is missing
            remote.refusal = str(error)
            self._refuse(request.request_id, remote)
            return
        self._next_orders().loads.append(
            LoadOrder(
                request.request_id,
                offer.transfer_id,
                offer.address,
                offer.hold,
                plan,
                waits=mode == "async",
            )
        )

    def _refuse(self, request_id: str, remote: _Remote) -> None:
        self._next_orders().refused.append(request_id)
        self._counters.add(f"failed_loads:{Cause.BAD_OFFER}")
        about = self._log.bind(request=request_id, **_named(remote.share))
        about.error("offer-refused", cause=Cause.BAD_OFFER, reason=remote.refusal)
        dump(about, request_id)
        self._release(request_id, remote)

    def _release(self, request_id: str, remote: _Remote) -> None:
        if remote.share is not None:
            self._next_orders().releases.append(ReleaseOrder(request_id, remote.share))


def _named(share: Share | None) -> dict[str, str]:
    """The transfer and the producer of an offer, as far as it tells."""
    if share is None:
        return {}
    address = share.address
    return {"transfer": share.transfer_id, "peer": f"{address.host}:{address.handshake_port}"}


def _address_in(request_id: str) -> tuple[str, int, int] | None:
    """The producer's address, if a router has written it into the request's id."""
    if "_addr_" not in request_id:  # as mostly; a text is searched faster than by an expression
        return None
    text = get_peer_zmq_from_request_id(request_id, is_producer=False)
    if text is None:
        return None
    try:
        host, handshake_port, notify_port = parse_moriio_zmq_address(text)
    except ValueError as error:
        raise MalformedPayload(str(error)) from None
    return host, handshake_port, notify_port
