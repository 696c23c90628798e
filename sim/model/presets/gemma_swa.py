"""A Gemma-3-12B-like model: five layers with a sliding window for each with full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.model.presets.base import Dimensions, Geometry, ModelPreset, heads_per_rank
from sim.model.weights import Weights

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec

_PERIOD = 6  # the last layer of each six has full attention


def _dimensions(num_layers: int, head_size: int, window: int) -> Dimensions:
    return Dimensions(
        num_layers=num_layers,
        num_kv_heads=8,
        head_size=head_size,
        hf_config={
            "model_type": "gemma3_text",
            "hidden_size": 16 * head_size,
            "intermediate_size": 60 * head_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": head_size,
            "sliding_window": window,
            "layer_types": [
                "full_attention" if _is_full(layer) else "sliding_attention"
                for layer in range(num_layers)
            ],
            "vocab_size": 262_208,
        },
    )


def _is_full(layer: int) -> bool:
    return layer % _PERIOD == _PERIOD - 1


def _layer_specs(
    tp_size: int, geometry: Geometry, vllm_config: VllmConfig | None = None
) -> dict[str, KVCacheSpec]:
    # Late, because vLLM takes seconds to load and naming the preset should not.
    import torch  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec  # noqa: PLC0415

    sizes = PRESET.sizes(geometry)
    common = {
        "block_size": vllm_config.cache_config.block_size if vllm_config else PRESET.block_size,
        "num_kv_heads": heads_per_rank(sizes.num_kv_heads, tp_size),
        "head_size": sizes.head_size,
        "dtype": torch.bfloat16,
    }
    full = FullAttentionSpec(**common)
    sliding = SlidingWindowSpec(**common, sliding_window=sizes.hf_config["sliding_window"])
    return {
        f"model.layers.{layer}.self_attn.attn": full if _is_full(layer) else sliding
        for layer in range(sizes.num_layers)
    }


PRESET = ModelPreset(
    name="gemma-swa",
    summary="Gemma-3-12B-like: five sliding windows to one full attention, six cache groups",
    attention="sliding window and full (grouped-query)",
    block_size=16,
    dimensions={
        "reduced": _dimensions(num_layers=2 * _PERIOD, head_size=2, window=64),
        "real": _dimensions(num_layers=8 * _PERIOD, head_size=256, window=1024),
    },
    weights=Weights(parameters=11.8e9),
    layer_specs=_layer_specs,
    # As for grouped queries in general: AITER unified attention's choice with a connector first.
    supported_layouts=("LBHNC", "LBNHC", "BLNHC", "BLHNC", "BHLNC", "LHBNC"),
    num_groups=_PERIOD,
)
