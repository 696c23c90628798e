"""A token computed from KV that never arrived is delivered, although the load is recomputed."""

from __future__ import annotations

import pytest
from plain_vllm import FULL, blocks_of, decode_leg, finish, make_scheduler
from vllm.v1.outputs import KVConnectorOutput

PROMPT = list(range(60))
FROM_NOTHING = 666
RIGHT = 7


@pytest.mark.parametrize("is_async", [False, True], ids=["synchronous", "asynchronous"])
def test_no_token_of_a_failed_load_is_delivered(is_async: bool) -> None:
    consumer = make_scheduler("kv_consumer", FULL, policy="recompute", is_async=is_async)
    request = decode_leg("asked", PROMPT, [[1, 2, 3, 4]])
    consumer.add_request(request)
    first = consumer.schedule()
    under_way = consumer.schedule() if is_async else None  # before the first step is over
    failed = KVConnectorOutput(invalid_block_ids=set(blocks_of(consumer, "asked")[0]))
    finish(consumer, first, token=FROM_NOTHING, connector_output=failed)
    if under_way is not None:
        finish(consumer, under_way, token=FROM_NOTHING)
    finish(consumer, consumer.schedule(), token=RIGHT)
    assert FROM_NOTHING not in request.output_token_ids, (
        f"the client gets {list(request.output_token_ids)}; {FROM_NOTHING} was sampled from KV "
        "whose load had failed"
    )
