"""A Kimi-Linear-48B-like model: three layers of Kimi delta attention for each latent one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sim.model.presets.base import (
    GEOMETRIES,
    Dimensions,
    Drafter,
    Geometry,
    ModelPreset,
    StateDimensions,
)
from sim.model.presets.hybrid import Layer, hybrid_specs
from sim.model.weights import Weights

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec

_HEADS = 32


def _dimensions(num_layers: int, latent: int, rope: int, state_size: int) -> Dimensions:
    latent_layers = [*range(4, num_layers, 4), num_layers]  # numbered from 1, as in config.json
    return Dimensions(
        num_layers=num_layers,
        num_kv_heads=1,
        head_size=latent + rope,
        hf_config={
            "model_type": "kimi_linear",
            "hidden_size": 18 * state_size,
            "intermediate_size": 72 * state_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _HEADS,
            "kv_lora_rank": latent,
            "q_lora_rank": None,
            "qk_rope_head_dim": rope,
            "qk_nope_head_dim": state_size,
            "v_head_dim": state_size,
            "mla_use_nope": True,
            "linear_attn_config": {
                "full_attn_layers": latent_layers,
                "kda_layers": [n for n in range(1, num_layers + 1) if n not in latent_layers],
                "num_heads": _HEADS,
                "head_dim": state_size,
                "short_conv_kernel_size": 4,
            },
            "vocab_size": 163_840,
        },
        state=StateDimensions(_HEADS, _HEADS, state_size, state_size),
    )


def _layer_specs(
    tp_size: int, geometry: Geometry, vllm_config: VllmConfig | None = None
) -> dict[str, KVCacheSpec]:
    # Late, because vLLM takes seconds to load and naming the preset should not.
    import torch  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import MLAAttentionSpec  # noqa: PLC0415

    sizes = PRESET.sizes(geometry)
    assert sizes.state is not None
    latent_layers = sizes.hf_config["linear_attn_config"]["full_attn_layers"]
    prefixes = [f"model.layers.{i}.self_attn" for i in range(sizes.num_layers)]
    return hybrid_specs(
        [
            Layer(f"{prefix}.attn", False) if n in latent_layers else Layer(prefix, True)
            for n, prefix in enumerate(prefixes, start=1)
        ],
        partial(
            MLAAttentionSpec,
            num_kv_heads=1,
            max_tp_shards=1,  # every rank holds the whole latent, whatever tp_size is
            head_size=sizes.head_size,
            dtype=torch.bfloat16,
            cache_dtype_str="auto",
        ),
        sizes.state,
        tp_size=tp_size,
        block_size=PRESET.block_size,
        vllm_config=vllm_config,
    )


PRESET = ModelPreset(
    name="kimi-linear",
    summary="Kimi-Linear-48B-like: KDA states, three cache groups, and one latent (MLA) group",
    attention="latent (MLA) and recurrent (KDA)",
    block_size=128,  # of which vLLM takes multiples wherever states go with a latent cache
    dimensions={
        # The last period of the model is shorter than the others, so one state group is, too.
        "reduced": _dimensions(num_layers=7, latent=16, rope=4, state_size=4),
        "real": _dimensions(num_layers=27, latent=512, rope=64, state_size=128),
    },
    weights=Weights(parameters=48e9, active_parameters=3e9, experts=256, experts_per_token=8),
    layer_specs=_layer_specs,
    # Neither the MLA nor the KDA backends state a preference, so this is vLLM's own order.
    supported_layouts=("LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC", "LHBNC"),
    num_groups=4,
    drafters={
        # As for Kimi-K3: layers of its own that have the cache of the model's latent ones.
        "dspark": Drafter(
            "K3DSparkModel",
            layers={
                geometry: {
                    f"draft.layers.{number}.self_attn.attn": "model.layers.3.self_attn.attn"
                    for number in range(2)
                }
                for geometry in GEOMETRIES
            },
            hf_config={},
        )
    },
    backends=("TRITON_MLA",),
)
