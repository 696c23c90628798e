"""A DeepSeek-V3-like model: latent attention, the same cache on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.model.presets.base import Dimensions, Drafter, Geometry, ModelPreset
from sim.model.weights import Weights

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec


def _dimensions(num_layers: int, latent: int, rope: int, scale: int) -> Dimensions:
    return Dimensions(
        num_layers=num_layers,
        num_kv_heads=1,
        head_size=latent + rope,
        hf_config={
            "model_type": "deepseek_v3",
            "hidden_size": 56 * scale,
            "intermediate_size": 144 * scale,
            "moe_intermediate_size": 16 * scale,
            "num_hidden_layers": num_layers,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "kv_lora_rank": latent,
            "q_lora_rank": 12 * scale,
            "qk_rope_head_dim": rope,
            "qk_nope_head_dim": scale,
            "v_head_dim": scale,
            "n_routed_experts": 256,
            "first_k_dense_replace": min(3, num_layers - 1),
            "vocab_size": 129_280,
        },
    )


def _layer_specs(
    tp_size: int, geometry: Geometry, vllm_config: VllmConfig | None = None
) -> dict[str, KVCacheSpec]:
    # Late, because vLLM takes seconds to load and naming the preset should not.
    import torch  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import MLAAttentionSpec  # noqa: PLC0415

    sizes = PRESET.sizes(geometry)
    spec = MLAAttentionSpec(
        block_size=vllm_config.cache_config.block_size if vllm_config else PRESET.block_size,
        num_kv_heads=1,
        max_tp_shards=1,  # every rank holds the whole latent, whatever tp_size is
        head_size=sizes.head_size,
        dtype=torch.bfloat16,
        cache_dtype_str="auto",
    )
    return {_layer(i): spec for i in range(sizes.num_layers)}


def _layer(number: int) -> str:
    return f"model.layers.{number}.self_attn.attn"


_REDUCED_LAYERS, _REAL_LAYERS = 3, 61

PRESET = ModelPreset(
    name="deepseek-mla",
    summary="DeepSeek-V3-like: latent (MLA) cache, the same bytes on every rank, one cache group",
    attention="latent (MLA)",
    block_size=64,
    dimensions={
        "reduced": _dimensions(num_layers=_REDUCED_LAYERS, latent=32, rope=4, scale=8),
        "real": _dimensions(num_layers=_REAL_LAYERS, latent=512, rope=64, scale=128),
    },
    weights=Weights(
        parameters=671e9,
        active_parameters=37e9,
        experts=256,
        experts_per_token=8,
        bytes_per_parameter=1.0,
    ),
    layer_specs=_layer_specs,
    # The MLA backends state no preference, so this is vLLM's own order.
    supported_layouts=("LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC", "LHBNC"),
    # One more layer of the same kind behind the others, for any number of drafts.
    drafters={
        "mtp": Drafter(
            "DeepSeekMTPModel",
            layers={
                "reduced": {_layer(_REDUCED_LAYERS): _layer(0)},
                "real": {_layer(_REAL_LAYERS): _layer(0)},
            },
            hf_config={"num_nextn_predict_layers": 1},
        )
    },
)
