"""A producer with sliding windows hands over less than the consumer's first token attends to."""

from __future__ import annotations

import pytest
from plain_vllm import BLOCK_SIZE, FULL, WINDOW, make_scheduler, prefill_leg, run_step


@pytest.mark.parametrize("length", range(192, 192 + BLOCK_SIZE))
def test_the_window_of_the_last_prompt_token_is_handed_over(length: int) -> None:
    producer = make_scheduler("kv_producer", FULL, WINDOW)
    producer.add_request(prefill_leg("asked", list(range(length))))
    offer = run_step(producer)["asked"]

    # In READ mode the consumer computes the last prompt token itself, from the tokens before it.
    position = length - 1
    first = (position - WINDOW.sliding_window + 1) // BLOCK_SIZE
    last = (position - 1) // BLOCK_SIZE
    of_window = offer["remote_block_ids"][1]
    num_blocks = -(-length // BLOCK_SIZE)
    by_position = dict(zip(range(num_blocks - len(of_window), num_blocks), of_window, strict=True))
    missing = [block for block in range(first, last + 1) if not by_position.get(block)]
    assert not missing, (
        f"token {position} attends to tokens from {position - WINDOW.sliding_window + 1} on, but "
        f"the producer gave up its block {missing[0]}"
    )
