"""A recurrent state is loaded only after the forward pass that starts from it was launched."""

from __future__ import annotations

import pytest
from plain_vllm import BLOCK_SIZE, FULL, STATE, decode_leg, finish, make_scheduler


@pytest.mark.parametrize("length", [3 * BLOCK_SIZE + 1, 3 * BLOCK_SIZE + 2])
def test_a_state_is_loaded_before_the_pass_that_needs_it(length: int) -> None:
    prompt = list(range(length))
    num_blocks = -(-(length - 1) // BLOCK_SIZE)  # the producer drops the last token
    consumer = make_scheduler("kv_consumer", FULL, STATE)
    for name in ("first", "second"):
        consumer.add_request(decode_leg(name, prompt, [[1, 2, 3, 4][:num_blocks], [5]]))
        step = consumer.schedule()
        # vLLM's worker loads before the forward pass if this is set, and after it if not
        # (v1/worker/gpu/kv_connector.py).
        is_before = step.has_sync_kv_loads
        is_read = name in step.kv_connector_metadata.reqs_to_recv
        assert is_before or not is_read, (
            f"the forward pass of {name!r} computes {step.num_scheduled_tokens[name]} token "
            "before the state that it starts from is read"
        )
        finish(consumer, step, token=7)
