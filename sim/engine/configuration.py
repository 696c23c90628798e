"""The vLLM configuration of an engine, and how many cache blocks it asks for at least."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from vllm.config import VllmConfig
from vllm.utils.math_utils import cdiv
from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
from vllm.v1.core.kv_cache_planning import get_kv_cache_groups
from vllm.v1.kv_cache_interface import KVCacheSpec, UniformTypeKVCacheSpecs

from sim.engine.data_parallel import configure_rank
from sim.guest.process import GuestProcess
from sim.model.config import build_vllm_config

if TYPE_CHECKING:
    from sim.engine.engine import Engine


def config_of(engine: Engine, guest: GuestProcess) -> VllmConfig:
    """As vLLM makes it of the engine's options; ``guest`` has the modules that it names."""
    connector = engine.connector
    if connector is not None:
        connector.load(guest)
    options = engine.options
    config = build_vllm_config(
        engine.preset,
        num_blocks=engine.num_blocks,
        geometry=engine.geometry,
        tp_size=options.tp_size,
        data_parallel_size=options.data_parallel_size,
        max_model_len=engine.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        enable_prefix_caching=options.enable_prefix_caching,
        enable_chunked_prefill=options.enable_chunked_prefill,
        async_scheduling=options.async_scheduling,
        model_runner=options.model_runner,
        connector=None if connector is None else connector.transfer_config(guest),
        kv_role=None if connector is None else connector.role,
        kv_load_failure_policy=options.kv_load_failure_policy,
        engine_id=f"{engine.group.name}-{engine.incarnation}",
        speculation=options.speculation,
    )
    if engine.group.size > 1:
        configure_rank(config, engine.data_parallel_rank)
    return config


def blocks_of_longest_request(engine: Engine, config: VllmConfig) -> list[int]:
    """The blocks that vLLM reserves for a request of the maximal length, by KV cache group.

    It starts with a pool of these and one block more, which it keeps to itself, and refuses a
    smaller one. ``config`` is that of ``engine``, and not changed.
    """
    config = copy.deepcopy(config)
    specs = engine.layer_specs(config)
    layouts = list(engine.preset.supported_layouts)
    # As in the engine core: how layers are grouped depends on the layout.
    resolve_kv_cache_layout(config, [layouts], list(specs.values()))
    groups = get_kv_cache_groups(config, specs)
    return [_pages(config, group.kv_cache_spec) for group in groups]


def _pages(config: VllmConfig, spec: KVCacheSpec) -> int:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return int(spec.max_memory_usage_pages(config))
    return int(cdiv(spec.max_memory_usage_bytes(config), spec.page_size_bytes))
