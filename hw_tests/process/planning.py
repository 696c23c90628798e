"""Cache planning by vLLM's own functions, in the order in which its engine core calls them."""

from __future__ import annotations

from typing import Any

from sim.model.environment import prepare_environment

prepare_environment()  # vLLM reads it while it is imported

from vllm.config import VllmConfig  # noqa: E402
from vllm.v1.attention.backends.utils import resolve_kv_cache_layout  # noqa: E402
from vllm.v1.core.kv_cache_planning import (  # noqa: E402
    get_global_kv_cache_groups,
    get_kv_cache_configs,
)
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    generate_scheduler_kv_cache_config,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs  # noqa: E402
from vllm.v1.kv_cache_interface import KVCacheConfig  # noqa: E402
from vllm.v1.kv_cache_layout import KVCacheLayout  # noqa: E402

AVAILABLE_MEMORY = 1 << 40


def plan_specs(
    vllm_config: VllmConfig, specs: list[dict[str, Any]], layouts: list[str]
) -> tuple[list[KVCacheConfig], KVCacheConfig, KVCacheLayout]:
    """The cache configurations of the ranks and of the scheduler, and the layout."""
    register_all_kvcache_specs(vllm_config)
    flat = [spec for of_rank in specs for spec in of_rank.values()]
    layout = resolve_kv_cache_layout(vllm_config, [layouts] * len(specs), flat)
    groups = get_global_kv_cache_groups(vllm_config, specs)
    memory = [AVAILABLE_MEMORY] * len(specs)
    workers = get_kv_cache_configs(vllm_config, specs, memory, groups)
    scheduler = generate_scheduler_kv_cache_config(workers)
    vllm_config.cache_config.num_gpu_blocks = scheduler.num_blocks
    vllm_config.cache_config.block_size = min(
        group.kv_cache_spec.block_size
        for group in scheduler.kv_cache_groups
        if group.kv_cache_spec.prefix_cacheable
    )
    vllm_config.validate_block_size()
    resolve_kv_cache_block_sizes(scheduler, vllm_config)
    return workers, scheduler, layout
