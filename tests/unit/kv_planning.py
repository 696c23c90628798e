"""Cache plans of presets by vLLM's own functions."""

from __future__ import annotations

from typing import Any

from hw_tests.process.planning import plan_specs
from sim.model.config import build_vllm_config
from sim.model.presets import Geometry, get_preset
from sim.model.speculation import Speculation

from vllm.v1.kv_cache_interface import KVCacheConfig  # isort: skip  # after sim.model.config
from vllm.v1.kv_cache_layout import KVCacheLayout  # isort: skip


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
