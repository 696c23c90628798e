"""The scheduler half of a producer: hands over blocks, and decides how long they are held."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

from connector.core.groups import TransferGroups
from connector.core.hold import LEASE, LeaseAction, LeaseEvent, LeaseState
from connector.core.offer import EXTENSION_KEY, HoldId, make_extension
from connector.core.pairing import first_positions
from connector.core.payload import encode, pad_dropped_token
from connector.counters import Counters
from connector.logs import log
from connector.metadata import ExpectedHold, Renewals, StepOrders
from connector.prompts import prompt_of_request

_TRUNCATED = "_p_side_truncated"  # upstream's mark, so that either connector does it once
_HANDED_OVER = (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)


@dataclass
class _Lease:
    state: LeaseState
    since: float
    deadline: float
    expected: ExpectedHold


class ProducerScheduler:
    """Producer, scheduler half.

    Args:
        groups: the model's.
        hold_timeout_s: how long blocks are held that nobody releases, from each renewal on.
        address_params: the part of the transfer parameters that is the same for all requests.
        counters: of this half.
    """

    def __init__(
        self,
        groups: TransferGroups,
        hold_timeout_s: float,
        address_params: dict[str, Any],
        counters: Counters,
    ) -> None:
        self.incarnation = uuid.uuid4().hex
        self._groups = groups
        self._hold_timeout_s = hold_timeout_s
        self._address_params = address_params
        self._counters = counters
        self._num_holds = 0
        self._running: dict[str, tuple[Request, ExpectedHold]] = {}
        self._leases: dict[str, _Lease] = {}
        self._orders: StepOrders | None = None
        self._idle = StepOrders(self.incarnation)  # shared by all idle steps
        self._log = log.bind(role="producer", half="scheduler", incarnation=self.incarnation)

    # ------------------------------------------------------------- vLLM's hooks

    def on_new_request(self, request: Request) -> None:
        """Drop the last prompt token, before vLLM looks for the prompt in its cache.

        The consumer computes that token. A state cannot be taken back by one token, and a sliding
        window would have given up the block that the consumer's last token still sees.
        """
        params = request.kv_transfer_params
        if not params or not params.get("do_remote_decode") or params.get(_TRUNCATED):
            return
        if not self._groups.producer_drops_last_token or request.num_prompt_tokens <= 1:
            return
        if request.prompt_token_ids is not None:
            request.prompt_token_ids.pop()
        if request.prompt_embeds is not None:  # alone, or beside tokens, with a mask
            request.prompt_embeds = request.prompt_embeds[:-1]
        if request.prompt_is_token_ids is not None:
            request.prompt_is_token_ids.pop()
        request._all_token_ids.pop()
        request.num_prompt_tokens -= 1
        request.max_tokens = 1
        params[_TRUNCATED] = True

    def update_state_after_alloc(self, request: Request) -> None:
        """Let the ranks know of the hold before anybody can ask about it."""
        params = request.kv_transfer_params
        if not params or not params.get("do_remote_decode"):
            return
        if request.request_id in self._running:
            return  # resumed after a preemption
        transfer_id = params.get("transfer_id")
        if not isinstance(transfer_id, str) or not transfer_id:  # none that a message can carry
            transfer_id = params["transfer_id"] = f"sidecar-{request.request_id}"
        self._num_holds += 1
        expected = ExpectedHold(request.request_id, transfer_id, self._num_holds)
        self._running[request.request_id] = request, expected
        self._next_orders().expected.append(expected)

    def build_orders(self, scheduler_output: SchedulerOutput) -> StepOrders:
        """What the ranks have to know in this step; lets go of holds whose time is over."""
        if self._leases:
            self._expire()
        settles = bool(self._running) and any(
            self._may_end(request_id, num_tokens)
            for request_id, num_tokens in scheduler_output.num_scheduled_tokens.items()
        )
        if not settles and self._orders is None:
            return self._idle
        orders, self._orders = self._next_orders(), None
        orders.settles = settles
        return orders

    def request_finished(
        self, request: Request, blocks: Sequence[list[int]]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Hand over the blocks of a request that has ended in good order.

        Args:
            request: that has ended.
            blocks: one list for each transferred group, in transfer order.
        """
        running = self._running.pop(request.request_id, None)
        if running is None:
            return False, None
        _, expected = running
        payload = encode(self._groups, blocks)
        if request.status not in _HANDED_OVER or not any(payload):
            self._next_orders().dropped.append(expected.number)
            return False, None
        self._next_orders().offered.append(expected.number)
        now = time.monotonic()
        self._leases[request.request_id] = _Lease(
            LeaseState.HOLDING, now, now + self._hold_timeout_s, expected
        )
        self._counters.set("held_leases", len(self._leases))
        return True, self._params(request, expected, payload)

    def update_connector_output(self, output: KVConnectorOutput) -> None:
        """Take renewals and the ends of holds.

        Each rank reports the end of a hold once. What else is reported is of another connector
        beside this one (vLLM's MultiConnector shows all of them the same output).
        """
        renewals = output.kv_connector_worker_meta
        if not isinstance(renewals, Renewals) and not output.finished_sending:
            return
        now = time.monotonic()
        if isinstance(renewals, Renewals):
            for lease in self._leases.values():
                if lease.expected.number in renewals.numbers:
                    self._advance(lease, LeaseEvent.RENEWED, now)
        if not output.finished_sending:
            return
        for request_id in sorted(output.finished_sending):
            ended = self._leases.pop(request_id, None)
            if ended is not None:
                self._advance(ended, LeaseEvent.SENT, now)
        self._counters.set("held_leases", len(self._leases))

    # ---------------------------------------------------------------- internal

    def _may_end(self, request_id: str, num_scheduled: int) -> bool:
        """Whether a step samples a token of a request that will be handed over.

        Earlier chunks of a prompt are done on the device before its last one is.
        """
        running = self._running.get(request_id)
        if running is None:
            return False
        request, _ = running
        return bool(request.num_computed_tokens + num_scheduled >= request.num_prompt_tokens)

    def _next_orders(self) -> StepOrders:
        """Of the next step; there are none until somebody has something to do."""
        if self._orders is None:
            self._orders = StepOrders(self.incarnation)
        return self._orders

    def _expire(self) -> None:
        now = time.monotonic()
        for lease in self._leases.values():
            if lease.state is LeaseState.HOLDING and now >= lease.deadline:
                self._advance(lease, LeaseEvent.EXPIRED, now)

    def _advance(self, lease: _Lease, event: LeaseEvent, now: float) -> None:
        move = LEASE(lease.state, event)
        lease.state = move.state
        if LeaseAction.EXTEND in move.actions:
            lease.deadline = now + self._hold_timeout_s
        if LeaseAction.REVOKE in move.actions:
            self._next_orders().revoked.append(lease.expected.number)
            self._counters.add("expired_leases")
            self._log.warning(
                "hold-expired",
                request=lease.expected.request_id,
                transfer=lease.expected.transfer_id,
                held_s=round(now - lease.since, 6),
                remedy="if its consumer lives and was still to read, raise defer_timeout",
            )

    def _params(
        self, request: Request, expected: ExpectedHold, payload: list[list[int]]
    ) -> dict[str, Any]:
        num_prompt = request.num_prompt_tokens
        if request.kv_transfer_params and request.kv_transfer_params.get(_TRUNCATED):
            num_prompt += 1
            payload = pad_dropped_token(self._groups, payload, num_prompt)
        firsts = first_positions(self._groups, payload, num_prompt)
        hold = HoldId(self.incarnation, expected.number)
        prompt = prompt_of_request(request, num_prompt)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": payload,
            **self._address_params,
            "transfer_id": expected.transfer_id,
            EXTENSION_KEY: make_extension(
                hold,
                payload,
                firsts,
                self._hold_timeout_s,
                prompt,
                tp_size=self._address_params["tp_size"],
            ),
        }
