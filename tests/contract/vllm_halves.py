"""A program: one request from a prefill to a decode engine, all four halves of the connector
loaded by vLLM's own factory, on real sockets and threads.

``main`` prints one JSON object.

    python vllm_halves.py MODEL PROMPT_TOKENS LOAD_MODE
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from hw_tests.process import shared_mori
from hw_tests.process.engine import stand_in_for_device
from hw_tests.process.launcher import free_port
from hw_tests.process.messages import Blocks, Role, SideOptions
from hw_tests.process.side import Side, enter_groups, make_side

PATIENCE_S = 30


def start(model: str, role: Role, load_mode: str, num_tokens: int) -> Side:
    ports = {"handshake_port": free_port(), "notify_port": free_port()}
    settings = {**ports, "load_mode": load_mode}
    return make_side(SideOptions(model, role, settings, max_tokens=num_tokens, num_blocks=200))


def transfer(model: str, num_tokens: int, load_mode: str) -> dict[str, Any]:
    """Prefill, hand over, load, decode, release; returns what was seen."""
    producer = start(model, "kv_producer", load_mode, num_tokens)
    consumer = start(model, "kv_consumer", load_mode, num_tokens)
    idle = producer.free_blocks, consumer.free_blocks
    prompt = list(range(1, num_tokens + 1))
    producer.memory.fill(1)

    producer.add("req-p", prompt, 1, {"do_remote_decode": True, "transfer_id": "tx-1"})
    prefilled = None
    while prefilled is None:
        produced = producer.step()
        prefilled = produced[0] if produced else None
    held = idle[0] - producer.free_blocks

    params = {**prefilled.kv_transfer_params, "transfer_id": "tx-1", "do_remote_prefill": True}
    consumer.add("req-d", prompt, 2, params)
    outputs: list[Any] = []
    begin = time.monotonic()
    while not outputs or outputs[-1].finish_reason is None:
        assert time.monotonic() - begin < PATIENCE_S, "the request does not end"
        outputs += consumer.step()
    while producer.free_blocks != idle[0]:
        assert time.monotonic() - begin < PATIENCE_S, "the producer's blocks are not released"
        producer.step()
    sources, targets = producer.blocks["req-p"], consumer.blocks["req-d"]
    result = {
        "classes": [type(s.worker).__name__ for s in (producer, consumer)]
        + [type(s.scheduler.connector).__name__ for s in (producer, consumer)],
        "module": type(producer.worker).__module__,
        "reason": str(outputs[-1].finish_reason),
        "tokens": sum(len(output.new_token_ids) for output in outputs),
        "payload": params["remote_block_ids"],
        "sources": sources,
        "targets": targets,
        "held": held,
        "free": consumer.free_blocks == idle[1],
        "same_bytes": same_bytes(producer, consumer, sources, targets),
    }
    for side in (producer, consumer):
        side.worker.shutdown()
    return result


def same_bytes(producer: Side, consumer: Side, sources: Blocks, targets: Blocks) -> dict[str, bool]:
    """For each layer, whether the first block that both have at one position holds the same."""
    first = [
        next(pair for pair in zip(theirs, ours, strict=True) if all(pair))
        for theirs, ours in zip(sources, targets, strict=True)
    ]
    written = producer.memory.digests_of([[source] for source, _ in first])
    found = consumer.memory.digests_of([[target] for _, target in first])
    return {layer: [*written[layer].values()] == [*found[layer].values()] for layer in written}


def main() -> None:
    model, num_tokens, load_mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    shared_mori.install()
    stand_in_for_device()
    enter_groups()
    print(json.dumps(transfer(model, num_tokens, load_mode)))


if __name__ == "__main__":
    main()
