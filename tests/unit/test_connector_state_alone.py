"""A prompt that lacks nothing but its state, in the hooks of the consumer's scheduler half (R9)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connector.consumer_scheduler import ConsumerScheduler
from connector.core.admission import NOTHING
from connector.core.groups import Group, GroupKind, StateShape, TransferGroups
from connector.counters import Counters

BLOCK = 16
PROMPT = 2 * BLOCK + 1
SHAPE = StateShape(((8, 3), (2, 4)), ("bf16", "f32"), BLOCK, 4096, 0)
GROUPS = TransferGroups(
    (
        Group(GroupKind.STATE, ("kda",), BLOCK, state=SHAPE),
        Group(GroupKind.FULL, ("attn",), BLOCK),
        Group(GroupKind.RING, ("tail",), 4),
    )
)
ADDRESS = {
    "remote_engine_id": "10.0.0.1:6301",
    "remote_host": "10.0.0.1",
    "remote_handshake_port": 6301,
    "remote_notify_port": 61005,
    "tp_size": 1,
}
OFFER = {
    **ADDRESS,
    "do_remote_prefill": True,
    "transfer_id": "tx-1",
    "remote_block_ids": [[31, 32, 0], [33], [34]],
}


def consumer(in_common: int, mode: Any = "async") -> ConsumerScheduler:
    """One whose vLLM has ``in_common`` tokens of every group."""
    scheduler = ConsumerScheduler(GROUPS, mode, 1, Counters(), tuple)
    manager: Any = SimpleNamespace(get_computed_blocks=lambda request: ((), in_common, 0))
    scheduler.bind_kv_cache_manager(manager)
    return scheduler


def request(offer: dict[str, Any]) -> Any:
    return SimpleNamespace(
        request_id="req-d0",
        num_prompt_tokens=PROMPT,
        prompt_token_ids=list(range(PROMPT)),
        mm_features=[],
        lora_request=None,
        prompt_embeds=None,
        kv_transfer_params=dict(offer),
    )


def step(blocks: tuple[list[int], ...] | None = None, computed: int = 0) -> Any:
    """What vLLM's scheduler has decided, perhaps the first pass of the request."""
    new = SimpleNamespace(req_id="req-d0", block_ids=blocks, num_computed_tokens=computed)
    return SimpleNamespace(
        scheduled_new_reqs=[new] if blocks else [], new_block_ids_to_zero=[9, 40]
    )


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_ring_and_state_are_loaded_before_the_request_runs(mode: Any) -> None:
    """One token is promised, the attention block of the token to come is left to be zeroed, and
    the worker is told of the state in both places, once."""
    scheduler, asked = consumer(0, mode), request(OFFER)
    assert scheduler.get_num_new_matched_tokens(asked, PROMPT - 1) == (1, True)
    assert scheduler.loaded_groups(asked) == [0, 2]
    scheduler.update_state_after_alloc(asked, [[0, 0, 7], [1, 2, 9], [8]], 1)
    orders = (admission := step()) and scheduler.build_orders(admission)
    assert [order.plan.ours for order in orders.loads] == [([], [8], [7])]
    assert [order.waits for order in orders.loads] == [True]
    assert admission.new_block_ids_to_zero == [9, 40]
    scheduler.update_connector_output(SimpleNamespace(finished_recving={"req-d0"}))  # type: ignore[arg-type]
    scheduler.update_state_after_alloc(asked, [[0, 0, 7], [1, 2, 9], [8]], 0)
    told = ([0, 0, 7], [1, 2, 9], [8])
    scheduler.build_orders(step(told, PROMPT - 1))
    assert told == ([0, 7, 7], [1, 2, 9], [8])
    again = ([0, 0, 7], [1, 2, 9], [8])
    scheduler.build_orders(step(again, PROMPT - 1))
    assert again == ([0, 0, 7], [1, 2, 9], [8])


def test_a_state_that_is_here_is_not_read() -> None:
    """The producer is released, and the worker is told what the scheduler says."""
    scheduler, asked = consumer(PROMPT - 1), request(OFFER)
    assert scheduler.get_num_new_matched_tokens(asked, PROMPT - 1) == NOTHING
    scheduler.update_state_after_alloc(asked, [[0, 6, 7], [1, 2, 9], [8]], 0)
    told = ([0, 6, 7], [1, 2, 9], [8])
    orders = scheduler.build_orders(step(told, PROMPT - 1))
    assert (orders.loads, len(orders.releases)) == ([], 1)
    assert told == ([0, 6, 7], [1, 2, 9], [8])


@pytest.mark.parametrize(
    "remote_block_ids",
    [None, [[31, 32, 0], [33]], [[31, 32, 0], [33], []], [[31, 32, 0], [], [34]]],
)
def test_an_offer_that_cannot_be_used_leaves_the_request_to_vllm(remote_block_ids: Any) -> None:
    """It goes on from where all groups agree, and its table is left alone."""
    scheduler = consumer(0)
    asked = request({**OFFER, "remote_block_ids": remote_block_ids})
    assert scheduler.get_num_new_matched_tokens(asked, PROMPT - 1) == NOTHING
    scheduler.update_state_after_alloc(asked, [[0, 0, 7], [1, 2, 9], [8]], 0)
    told = ([0, 0, 7], [1, 2, 9], [8])
    orders = scheduler.build_orders(step(told, 0))
    assert (orders.loads, len(orders.releases)) == ([], 1)
    assert told == ([0, 0, 7], [1, 2, 9], [8])


def test_a_load_that_failed_is_not_shown() -> None:
    """vLLM asks again, gets 0, and computes from where all groups agree."""
    scheduler, asked = consumer(0), request(OFFER)
    assert scheduler.get_num_new_matched_tokens(asked, PROMPT - 1) == (1, True)
    scheduler.update_state_after_alloc(asked, [[0, 0, 7], [1, 2, 9], [8]], 1)
    scheduler.build_orders(step())
    scheduler.update_connector_output(SimpleNamespace(finished_recving={"req-d0"}))  # type: ignore[arg-type]
    assert scheduler.get_num_new_matched_tokens(asked, PROMPT - 1) == NOTHING
    scheduler.update_state_after_alloc(asked, [[0, 0, 7], [1, 2, 9], [8]], 0)
    told = ([0, 0, 7], [1, 2, 9], [8])
    scheduler.build_orders(step(told, 0))
    assert told == ([0, 0, 7], [1, 2, 9], [8])
