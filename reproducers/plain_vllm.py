"""Parts of a vLLM engine without a model: its own scheduler and connector, on a CPU.

Only vLLM is imported. What a model would compute does not matter to the tests here; they look at
which blocks the scheduler and the connector use when.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "1")

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

BLOCK_SIZE = 16
FULL = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=8, head_size=8, dtype=torch.bfloat16)
WINDOW = SlidingWindowSpec(
    block_size=BLOCK_SIZE, num_kv_heads=8, head_size=8, dtype=torch.bfloat16, sliding_window=64
)
STATE = MambaSpec(
    block_size=BLOCK_SIZE,
    shapes=((3, 16), (32, 32)),
    dtypes=(torch.bfloat16, torch.float32),
    mamba_cache_mode="align",
)
PORTS = {"handshake_port": 6301, "notify_port": 61005, "host_ip": "127.0.0.1"}


def make_scheduler(
    role: Literal["kv_producer", "kv_consumer"],
    *specs: KVCacheSpec,
    num_blocks: int = 64,
    policy: Literal["fail", "recompute"] = "fail",
    is_async: bool = False,
) -> Scheduler:
    """vLLM's scheduler with MoRIIO's scheduler half in READ mode; a cache group for each spec."""
    config = VllmConfig(
        model_config=_model_config(),
        scheduler_config=SchedulerConfig(
            max_model_len=1024,
            max_num_seqs=16,
            max_num_batched_tokens=1024,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE),
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=KVTransferConfig(
            kv_connector="MoRIIOConnector",
            kv_role=role,
            kv_load_failure_policy=policy,
            kv_connector_extra_config={"read_mode": True, **PORTS},
        ),
    )
    # The CPU platform has changed what follows; a GPU's would not have.
    config.scheduler_config.enable_chunked_prefill = True
    config.scheduler_config.max_num_batched_tokens = 1024
    config.scheduler_config.async_scheduling = is_async
    config.cache_config.block_size = BLOCK_SIZE
    config.cache_config.enable_prefix_caching = True
    config.cache_config.num_gpu_blocks = num_blocks
    if any(isinstance(spec, MambaSpec) for spec in specs):
        config.cache_config.mamba_cache_mode = "align"
        config.cache_config.mamba_block_size = BLOCK_SIZE
    init_none_hash(sha256)
    scheduler_class = AsyncScheduler if is_async else Scheduler
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=_cache_config(specs, num_blocks),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(
    name: str,
    prompt: list[int],
    *,
    max_tokens: int = 1,
    kv_transfer_params: dict[str, Any] | None = None,
) -> Request:
    """A request as the engine core receives it."""
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    if kv_transfer_params is not None:
        params.extra_args = {"kv_transfer_params": kv_transfer_params}
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        sampling_params=params,
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def prefill_leg(name: str, prompt: list[int]) -> Request:
    """What a router sends to the producer."""
    asked = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": f"tx-{name}"}
    return make_request(name, prompt, kv_transfer_params=asked)


def decode_leg(name: str, prompt: list[int], remote_block_ids: list[list[int]]) -> Request:
    """What a router sends to the consumer, with the transfer parameters of the prefill leg."""
    offer = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": remote_block_ids,
        "remote_engine_id": "127.0.0.1:6301",
        "remote_host": PORTS["host_ip"],
        "remote_handshake_port": PORTS["handshake_port"],
        "remote_notify_port": PORTS["notify_port"],
        "remote_dp_size": 1,
        "tp_size": 1,
        "transfer_id": f"tx-{name}",
    }
    return make_request(name, prompt, max_tokens=4, kv_transfer_params=offer)


def run_step(
    scheduler: Scheduler,
    *,
    token: int = 7,
    connector_output: KVConnectorOutput | None = None,
) -> dict[str, Any]:
    """Schedule a step and finish it; returns the transfer parameters of requests that ended."""
    return finish(scheduler, scheduler.schedule(), token=token, connector_output=connector_output)


def finish(
    scheduler: Scheduler,
    step: SchedulerOutput,
    *,
    token: int,
    connector_output: KVConnectorOutput | None = None,
) -> dict[str, Any]:
    """Report a step in which every scheduled request sampled ``token``."""
    names = list(step.num_scheduled_tokens)
    result = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[token] for _ in names],
        kv_connector_output=connector_output,
    )
    outputs = scheduler.update_from_output(step, result)
    return {
        output.request_id: output.kv_transfer_params
        for of_client in outputs.values()
        for output in of_client.outputs
        if output.kv_transfer_params
    }


def blocks_of(scheduler: Scheduler, name: str) -> list[list[int]]:
    """Block ids of a request, one list for each cache group."""
    return [list(group) for group in scheduler.kv_cache_manager.get_block_ids(name)]


def _model_config() -> ModelConfig:
    contents = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 8,
        "vocab_size": 32_000,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(contents))
        return ModelConfig(
            model=directory, tokenizer=directory, skip_tokenizer_init=True, max_model_len=1024
        )


def _cache_config(specs: tuple[KVCacheSpec, ...], num_blocks: int) -> KVCacheConfig:
    groups = [KVCacheGroupSpec([f"layers.{i}"], spec) for i, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
