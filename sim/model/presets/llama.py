"""A Llama-3.1-8B-like model: full attention with grouped queries, heads split over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.model.presets.base import Dimensions, Geometry, ModelPreset, heads_per_rank
from sim.model.weights import Weights

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec

_QUERIES_PER_KV_HEAD = 4


def _dimensions(num_layers: int, head_size: int, intermediate_size: int) -> Dimensions:
    num_kv_heads = 8
    attention_heads = num_kv_heads * _QUERIES_PER_KV_HEAD
    return Dimensions(
        num_layers=num_layers,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        hf_config={
            "model_type": "llama",
            "hidden_size": attention_heads * head_size,
            "intermediate_size": intermediate_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": attention_heads,
            "num_key_value_heads": num_kv_heads,
            "head_dim": head_size,
            "vocab_size": 128_256,
        },
    )


def _layer_specs(
    tp_size: int, geometry: Geometry, vllm_config: VllmConfig | None = None
) -> dict[str, KVCacheSpec]:
    # Late, because vLLM takes seconds to load and naming the preset should not.
    import torch  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import FullAttentionSpec  # noqa: PLC0415

    sizes = PRESET.sizes(geometry)
    spec = FullAttentionSpec(
        block_size=vllm_config.cache_config.block_size if vllm_config else PRESET.block_size,
        num_kv_heads=heads_per_rank(sizes.num_kv_heads, tp_size),
        head_size=sizes.head_size,
        dtype=torch.bfloat16,
    )
    return {f"model.layers.{i}.self_attn.attn": spec for i in range(sizes.num_layers)}


PRESET = ModelPreset(
    name="llama",
    summary="Llama-3.1-8B-like: full attention, 8 KV heads split over ranks, one cache group",
    attention="full (grouped-query)",
    block_size=16,
    # The reduced heads are small, but as many: the split over ranks is a structural fact.
    dimensions={
        "reduced": _dimensions(num_layers=4, head_size=2, intermediate_size=128),
        "real": _dimensions(num_layers=32, head_size=128, intermediate_size=14_336),
    },
    weights=Weights(parameters=8.03e9),
    layer_specs=_layer_specs,
    # First what vLLM picks on MI300X when a connector is configured (AITER unified attention),
    # then the rest in vLLM's own order: the Triton backend, its fallback, takes any.
    supported_layouts=("LBHNC", "LBNHC", "BLNHC", "BLHNC", "BHLNC", "LHBNC"),
)
