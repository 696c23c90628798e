"""Real vLLM configurations for a preset, as a ROCm deployment has them, built on a CPU host.

vLLM's CPU platform changes what it is asked for (scheduling, chunking, block size, prefix
caching), partly depending on the host's CPU. What production would have is put back afterwards.
Connectors are named, never imported here: vLLM imports the connector class itself while it checks
the configuration, so its module has to be importable by then.
"""

from __future__ import annotations

import copy
import json
import logging
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sim.errors import UsageError
from sim.model.environment import environment_unchanged, prepare_environment
from sim.model.presets import Geometry, ModelPreset
from sim.model.presets.base import StateDimensions
from sim.model.presets.hybrid import state_dtypes, state_shapes
from sim.model.speculation import Speculation

prepare_environment()  # vLLM reads it while it is imported

import vllm.envs as envs  # noqa: E402
from torch import nn  # noqa: E402
from vllm.config import (  # noqa: E402
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ObservabilityConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.model_executor.models import ModelRegistry  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402

from sim.model.speculative_config import speculative_config  # noqa: E402

KVRole = Literal["kv_producer", "kv_consumer", "kv_both"]

# It warns about every change that is undone below.
logging.getLogger("vllm.platforms.cpu").setLevel(logging.ERROR)


class _SyntheticModel(nn.Module):
    """Has the methods by which vLLM recognises a text generation model; never instantiated.

    A registered class is inspected in this process. One of vLLM's own architectures would be
    inspected in a subprocess, which takes seconds in a fresh environment.
    """

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        raise NotImplementedError

    def embed_input_ids(self, input_ids: object) -> object:
        raise NotImplementedError

    def forward(self, input_ids: object, positions: object) -> object:
        raise NotImplementedError

    def compute_logits(self, hidden_states: object) -> object:
        raise NotImplementedError


@cache
def _architecture(preset: ModelPreset, geometry: Geometry) -> str:
    """The name under which vLLM knows the model; in its registry from now on."""
    name = f"Faultlab-{preset.name}-{geometry}-ForCausalLM"
    state = preset.sizes(geometry).state
    model = _SyntheticModel if state is None else _hybrid_model(state)
    ModelRegistry.register_model(name, model)
    return name


def _hybrid_model(state: StateDimensions) -> type[nn.Module]:
    class SyntheticHybridModel(_SyntheticModel):
        """What vLLM asks a hybrid model before it is loaded."""

        is_hybrid = True

        @classmethod
        def get_mamba_state_shape_from_config(
            cls, vllm_config: VllmConfig
        ) -> tuple[tuple[int, ...], ...]:
            tp_size = vllm_config.parallel_config.tensor_parallel_size
            return state_shapes(state, tp_size, vllm_config.num_speculative_tokens)

        @classmethod
        def get_mamba_state_dtype_from_config(cls, vllm_config: VllmConfig) -> tuple[Any, ...]:
            return state_dtypes()

    return SyntheticHybridModel


def build_vllm_config(
    preset: ModelPreset,
    *,
    num_blocks: int,
    geometry: Geometry = "reduced",
    tp_size: int = 1,
    data_parallel_size: int = 1,
    max_model_len: int | None = None,
    max_num_seqs: int = 64,
    max_num_batched_tokens: int = 8192,
    enable_prefix_caching: bool = True,
    enable_chunked_prefill: bool = True,
    async_scheduling: bool = True,
    model_runner: Literal["v2", "v1"] = "v2",
    connector: Mapping[str, Any] | None = None,
    kv_role: KVRole | None = None,
    kv_load_failure_policy: Literal["fail", "recompute"] = "fail",
    engine_id: str | None = None,
    speculation: Speculation | None = None,
) -> VllmConfig:
    """The configuration of one engine, its own copy throughout.

    Args:
        preset: the model; its block size is the engine's, unless a state needs a larger one. For
            ``speculation`` it has to have a drafter.
        num_blocks: cache blocks per rank, the null block included.
        geometry, tp_size: which of the preset's dimensions, and over how many ranks.
        data_parallel_size: data-parallel ranks of the instance, all on one machine.
        max_model_len: longest request in tokens, which a cache must hold; the preset's by default.
        max_num_seqs, max_num_batched_tokens, enable_prefix_caching, enable_chunked_prefill,
            async_scheduling: as vLLM calls them.
        model_runner: which one vLLM's scheduler makes its outputs for.
        connector: ``kv_connector`` and other fields of vLLM's KVTransferConfig, as needed.
        kv_role, kv_load_failure_policy: as vLLM calls them; a role only with a connector.
        engine_id: name of the engine towards its peers; vLLM's default is random.

    Raises:
        UsageError: an argument does not fit the preset, or vLLM was loaded for another platform.
        ValueError: vLLM itself refuses the combination, a pydantic ValidationError included.
    """
    _check_platform()
    _check_options(preset, geometry, tp_size, enable_prefix_caching and not enable_chunked_prefill)
    with environment_unchanged():
        max_model_len = max_model_len or preset.max_positions
        model_config = _model_config(preset, geometry, max_model_len)
        parallel_config = _parallel_config(tp_size, data_parallel_size)
        config = _CONFIG_CLASSES[model_runner](
            model_config=model_config,
            parallel_config=parallel_config,
            **_speculation(preset, geometry, speculation, model_config, parallel_config),
            scheduler_config=_scheduler_config(
                max_model_len, max_num_seqs, max_num_batched_tokens, enable_chunked_prefill
            ),
            cache_config=_cache_config(preset),
            device_config=DeviceConfig("cpu"),
            kv_transfer_config=_transfer_config(
                connector, kv_role, kv_load_failure_policy, engine_id
            ),
        )
    config.cache_config.num_gpu_blocks_override = num_blocks
    config.cache_config.enable_prefix_caching = enable_prefix_caching
    _undo_cpu_platform(config, preset)
    scheduler = config.scheduler_config
    scheduler.enable_chunked_prefill = enable_chunked_prefill
    scheduler.max_num_batched_tokens = max_num_batched_tokens
    scheduler.async_scheduling = async_scheduling
    preset.prepare_config(config)
    return config


def _speculation(
    preset: ModelPreset,
    geometry: Geometry,
    speculation: Speculation | None,
    model_config: ModelConfig,
    parallel_config: ParallelConfig,
) -> dict[str, Any]:
    if speculation is None:
        return {}
    return {
        "speculative_config": speculative_config(
            preset, geometry, speculation, model_config, parallel_config, _SyntheticModel
        ),
        # Requests then bring along how many of their drafts were accepted.
        "observability_config": ObservabilityConfig(per_request_spec_decode_metrics="detailed"),
    }


class _V1RunnerConfig(VllmConfig):
    """vLLM asks the environment, which all engines of all runs share, for the model runner."""

    @property
    def use_v2_model_runner(self) -> bool:
        return False


_CONFIG_CLASSES: dict[str, type[VllmConfig]] = {"v2": VllmConfig, "v1": _V1RunnerConfig}


def _scheduler_config(
    max_model_len: int, max_num_seqs: int, max_num_batched_tokens: int, chunked_prefill: bool
) -> SchedulerConfig:
    return SchedulerConfig(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enable_chunked_prefill=chunked_prefill,
        is_encoder_decoder=False,
    )


def _parallel_config(tp_size: int, data_parallel_size: int) -> ParallelConfig:
    return ParallelConfig(
        tensor_parallel_size=tp_size,
        data_parallel_size=data_parallel_size,
        data_parallel_size_local=data_parallel_size,
        # Else vLLM looks for free ports of this machine. Nobody opens these.
        _data_parallel_master_port_list=[29_501],
        distributed_executor_backend="mp",  # the one that the CPU platform leaves alone
    )


def _cache_config(preset: ModelPreset) -> CacheConfig:
    # The CPU platform turns prefix caching off in the middle of the checks, after vLLM has chosen
    # the block size of states and before it asks whether the two fit each other.
    return CacheConfig(
        block_size=preset.block_size,
        cache_dtype=preset.cache_dtype,
        enable_prefix_caching=not preset.is_hybrid,
    )


def _undo_cpu_platform(config: VllmConfig, preset: ModelPreset) -> None:
    """Put back what the platform chose by itself, and a ROCm one would not have."""
    config.cache_config.block_size = preset.block_size
    config.cache_config.mamba_ssm_cache_dtype = "auto"


def _check_platform() -> None:
    if not current_platform.is_cpu() or not envs.VLLM_USE_V2_MODEL_RUNNER:
        raise UsageError(
            f"vLLM was loaded for {type(current_platform).__name__} with "
            f"VLLM_USE_V2_MODEL_RUNNER={envs.VLLM_USE_V2_MODEL_RUNNER}, before "
            "sim.model.environment.prepare_environment() could set it up: call that first"
        )


def _check_options(
    preset: ModelPreset, geometry: Geometry, tp_size: int, caches_whole_prefills: bool
) -> None:
    preset.layer_specs(tp_size, geometry)  # a tp_size that does not fit is an error here
    preset.require_chunks(caches_whole_prefills)


def _transfer_config(
    connector: Mapping[str, Any] | None,
    kv_role: KVRole | None,
    kv_load_failure_policy: str,
    engine_id: str | None,
) -> KVTransferConfig | None:
    if (connector is None) != (kv_role is None):
        raise UsageError(
            f"connector is {connector!r} and kv_role is {kv_role!r}: give both or neither"
        )
    if connector is None:
        return None
    return KVTransferConfig(
        kv_role=kv_role,
        kv_load_failure_policy=kv_load_failure_policy,
        engine_id=engine_id,
        **copy.deepcopy(dict(connector)),
    )


def _model_config(preset: ModelPreset, geometry: Geometry, max_model_len: int) -> ModelConfig:
    return copy.deepcopy(_shared_model_config(preset, geometry, max_model_len))


@cache
def _shared_model_config(
    preset: ModelPreset, geometry: Geometry, max_model_len: int
) -> ModelConfig:
    name = f"faultlab/{preset.name}-{geometry}"
    contents = {
        **preset.sizes(geometry).hf_config,
        "architectures": [_architecture(preset, geometry)],
        "max_position_embeddings": preset.max_positions,
        "torch_dtype": preset.dtype,
        "tie_word_embeddings": False,  # else vLLM searches the weights to find out
    }
    with tempfile.TemporaryDirectory(prefix="faultlab-model-") as directory:
        (Path(directory) / "config.json").write_text(json.dumps(contents))
        config = ModelConfig(
            model=directory,
            tokenizer=directory,
            skip_tokenizer_init=True,
            served_model_name=name,
            dtype=preset.dtype,
            max_model_len=max_model_len,
            seed=0,
        )
    # The directory's name is random, and connectors tell it to their peers.
    config.model = config.tokenizer = name
    config.hf_config._name_or_path = name
    return config
