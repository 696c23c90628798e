"""Cache planning by vLLM's own functions, in the order in which its engine core calls them."""

from __future__ import annotations

from typing import Any

from sim.model.config import build_vllm_config
from sim.model.presets import Geometry, get_preset
from sim.model.speculation import Speculation

from vllm.config import VllmConfig  # isort: skip  # after sim.model.config prepared vLLM's variables
from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.kv_cache_layout import KVCacheLayout

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


def plan_preset(
    name: str,
    *,
    tp_size: int = 1,
    geometry: Geometry = "reduced",
    layout: str | None = None,
    num_blocks: int = 20,
    speculation: Speculation | None = None,
    **options: Any,
) -> tuple[list[KVCacheConfig], KVCacheConfig, KVCacheLayout]:
    """The plan of a preset's engine; of a small one, unless told otherwise."""
    preset = get_preset(name)
    drafts = speculation.num_speculative_tokens if speculation else 0
    vllm_config = build_vllm_config(
        preset,
        num_blocks=num_blocks,
        geometry=geometry,
        tp_size=tp_size,
        max_model_len=preset.tokens_per_block(tp_size, geometry, drafts) * 2,
        max_num_batched_tokens=256,
        speculation=speculation,
        **options,
    )
    specs = [preset.cache_specs(tp_size, geometry, vllm_config) for _ in range(tp_size)]
    layouts = [layout] if layout else list(preset.supported_layouts)
    return plan_specs(vllm_config, specs, layouts)
