"""A producer gives blocks to somebody else while a consumer still means to read them."""

from __future__ import annotations

import pytest
from plain_vllm import (
    FULL,
    blocks_of,
    decode_leg,
    make_request,
    make_scheduler,
    prefill_leg,
    run_step,
)
from vllm.distributed.kv_transfer.kv_connector.v1.moriio import moriio_connector
from vllm.v1.outputs import KVConnectorOutput

PROMPT = list(range(100, 160))


@pytest.mark.parametrize("delay_s", [55, 65])  # ``defer_timeout`` is 60
def test_blocks_of_an_offer_are_held_or_the_consumer_is_told(
    monkeypatch: pytest.MonkeyPatch, delay_s: int
) -> None:
    producer = make_scheduler("kv_producer", FULL, num_blocks=12)
    consumer = make_scheduler("kv_consumer", FULL)
    producer.add_request(prefill_leg("early", PROMPT))
    offer = run_step(producer)["early"]

    # The router, or the consumer's queue, keeps the request for so long.
    clock = moriio_connector.time.monotonic
    monkeypatch.setattr(moriio_connector.time, "monotonic", lambda: clock() + delay_s)
    run_step(producer, connector_output=KVConnectorOutput(finished_sending=set()))
    producer.add_request(make_request("later", list(range(500, 660)), max_tokens=4))
    run_step(producer)

    (offered,) = offer["remote_block_ids"]
    consumer.add_request(decode_leg("early", PROMPT, [offered]))
    reads = consumer.schedule().kv_connector_metadata.reqs_to_recv
    taken = set(offered) & set(blocks_of(producer, "later")[0])
    assert not (taken and "early" in reads), (
        f"the consumer is going to read blocks {sorted(taken)}, which hold another request's KV"
    )
