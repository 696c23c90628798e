"""Schedulers of both roles, given odd transfer parameters."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import msgspec
from odd_input import BATCH, INCARNATION, OddInput
from vllm.v1.request import RequestStatus

from connector.consumer_scheduler import ConsumerScheduler
from connector.core.groups import Group, GroupKind, StateShape, TransferGroups
from connector.core.offer import EXTENSION_KEY, HoldId, make_extension
from connector.core.pairing import first_positions
from connector.core.prompt import prompt_of
from connector.counters import Counters
from connector.holds import HoldBook
from connector.producer_scheduler import ProducerScheduler

_FULL = Group(GroupKind.FULL, ("attn",), 16)
_STATE = Group(GroupKind.STATE, ("kda",), 16, state=StateShape(((1,), (1,)), ("a", "b"), 16, 64, 0))
GROUPS = {"full": TransferGroups((_FULL,)), "hybrid": TransferGroups((_FULL, _STATE))}
_TOKENS = list(range(1000, 1050))
_OURS = [[1, 2, 3, 4], [0, 0, 0, 5]]
_OUTPUT: Any = SimpleNamespace(
    scheduled_new_reqs=[], new_block_ids_to_zero=None, num_scheduled_tokens={}
)


def as_they_arrive(params: Any) -> Any:
    """Through a router's JSON, and from vLLM's front end to its engine; None if that refuses."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(json.loads(json.dumps(params))))
    except (OverflowError, TypeError, ValueError):
        return None


def _request(name: str, params: Any) -> Any:
    return SimpleNamespace(
        request_id=name,
        num_prompt_tokens=len(_TOKENS),
        num_computed_tokens=0,
        prompt_token_ids=list(_TOKENS),
        _all_token_ids=list(_TOKENS),
        prompt_embeds=None,
        prompt_is_token_ids=None,
        mm_features=[],
        lora_request=None,
        kv_transfer_params=params,
        status=RequestStatus.FINISHED_LENGTH_CAPPED,
    )


class OddParams:
    """A consumer's scheduler and a producer's with one rank; each request ends."""

    def __init__(self, model: str) -> None:
        groups = GROUPS[model]
        self._blocks = _OURS[: len(groups)]
        select: Any = tuple
        self._consumer = ConsumerScheduler(groups, "async", 1, Counters(), select)
        self._producer = ProducerScheduler(groups, 60.0, {"tp_size": 1}, Counters())
        self._holds = HoldBook(1)
        prompt = prompt_of(len(_TOKENS), _TOKENS)
        theirs = [[11, 12, 13, 14], [15]][: len(groups)]
        firsts = first_positions(groups, theirs, len(_TOKENS))
        hold = HoldId(INCARNATION, 1)
        self._offer = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_host": "10.0.0.1",
            "remote_handshake_port": 6301,
            "remote_notify_port": 61005,
            "remote_dp_rank": 0,
            "remote_dp_size_local": 1,
            "tp_size": 1,
            "transfer_id": "t1",
            "remote_block_ids": theirs,
            EXTENSION_KEY: make_extension(hold, theirs, firsts, 60.0, prompt, tp_size=1),
        }
        self._wish = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": "t1"}
        self.loads = self.refused = 0

    def check(self, seed: int) -> None:
        """Nothing is raised, whatever a request brings, and nothing of it is kept."""
        odd = OddInput(seed)
        rng = random.Random(seed)
        for number in range(BATCH):
            self._decode(as_they_arrive(odd.changed(self._offer)), rng)
            self._prefill(as_they_arrive(odd.changed(self._wish)), number)
        assert self._consumer._remotes == {}
        assert (self._producer._running, self._producer._leases) == ({}, {})
        assert len(self._holds) == 0

    def _decode(self, params: Any, rng: random.Random) -> None:
        if not isinstance(params, dict):  # vLLM itself takes nothing else
            return
        consumer, request = self._consumer, _request("r-d0", params)
        consumer.on_new_request(request)
        ends_early = rng.random() < 0.2
        if not ends_early:
            hit = rng.choice((0, 0, 16, 48, len(_TOKENS) - 1))
            promised, waits = consumer.get_num_new_matched_tokens(request, hit)
            assert 0 <= promised < len(_TOKENS)
            consumer.update_state_after_alloc(request, self._blocks, promised)
            orders = consumer.build_orders(_OUTPUT)
            self.loads += len(orders.loads)
            self.refused += len(orders.refused)
            assert len(orders.loads) + len(orders.refused) == (promised > 0)
            if waits:
                reported: Any = SimpleNamespace(finished_recving={"r-d0"})
                consumer.update_connector_output(reported)
        consumer.request_finished(request)
        consumer.build_orders(_OUTPUT)

    def _prefill(self, params: Any, number: int) -> None:
        if isinstance(params, dict):  # vLLM itself takes nothing else
            self.prefill(params, number)

    def prefill(self, params: dict[str, Any], number: int) -> None:
        """One request of the producer, from its arrival to its release."""
        producer, request = self._producer, _request(f"r{number}-p0", params)
        producer.on_new_request(request)
        producer.update_state_after_alloc(request)
        self._holds.take_orders(producer.build_orders(_OUTPUT))
        held, offer = producer.request_finished(request, self._blocks)
        assert held == (offer is not None)
        orders = producer.build_orders(_OUTPUT)
        self._holds.take_orders(orders)
        if offer is not None:
            hold = HoldId(producer.incarnation, offer[EXTENSION_KEY]["hold"])
            assert self._holds.release(offer["transfer_id"], hold, 0, 1)
        sent: Any = SimpleNamespace(
            finished_sending=self._holds.take_sent(), kv_connector_worker_meta=None
        )
        producer.update_connector_output(sent)
