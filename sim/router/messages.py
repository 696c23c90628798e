"""What the router tells engines: requests in vLLM's own form, and KV transfer parameters.

The parameters are those of vLLM's proxies for disaggregated serving: the producer is told that
somebody else will decode, and what it answers goes on to the consumer.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from sim.model.environment import prepare_environment

prepare_environment()  # vLLM reads it while it is imported

from vllm import SamplingParams  # noqa: E402
from vllm.v1.engine import EngineCoreRequest  # noqa: E402

KVTransferParams = dict[str, Any]


def prefill_params(transfer_id: str) -> KVTransferParams:
    """For a producer: prefill for a consumer that is not known yet."""
    return {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
        "transfer_id": transfer_id,
    }


def decode_params(returned: Mapping[str, Any], *, producer_tp_size: int) -> KVTransferParams:
    """For a consumer: what the producer returned, and what a router knows of the producer."""
    return {"remote_dp_size": 1, "tp_size": producer_tp_size, **copy.deepcopy(dict(returned))}


def engine_request(
    request_id: str,
    prompt: list[int],
    *,
    max_tokens: int,
    arrival_s: float,
    params: KVTransferParams | None,
    stop_tokens: tuple[int, ...] = (),
) -> EngineCoreRequest:
    """A greedy request that ends by its length, or with the first of ``stop_tokens``.

    ``prompt`` and ``params`` belong to the engine from now on: connectors change both.
    """
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=max_tokens,
        ignore_eos=True,
        stop_token_ids=list(stop_tokens),
        detokenize=False,
        extra_args=None if params is None else {"kv_transfer_params": params},
    )
    return EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        mm_features=None,
        sampling_params=sampling,
        pooling_params=None,
        arrival_time=arrival_s,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
