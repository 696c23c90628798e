"""A Qwen3.5-like model: three layers of gated delta net for each with full attention."""

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
    heads_per_rank,
)
from sim.model.presets.hybrid import Layer, hybrid_specs

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec

_PERIOD = 4  # the last layer of each four has attention


def _dimensions(num_layers: int, head_size: int, state: StateDimensions) -> Dimensions:
    return Dimensions(
        num_layers=num_layers,
        num_kv_heads=2,
        head_size=head_size,
        hf_config={
            "model_type": "qwen3_5_text",
            "hidden_size": 12 * head_size,
            "intermediate_size": 20 * head_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": head_size,
            "layer_types": [
                "linear_attention" if _is_recurrent(layer) else "full_attention"
                for layer in range(num_layers)
            ],
            "linear_num_key_heads": state.key_heads,
            "linear_num_value_heads": state.value_heads,
            "linear_key_head_dim": state.key_size,
            "linear_value_head_dim": state.value_size,
            "linear_conv_kernel_dim": state.conv_kernel_size,
            "mamba_ssm_dtype": "float32",
            "vocab_size": 248_320,
        },
        state=state,
    )


def _is_recurrent(layer: int) -> bool:
    return layer % _PERIOD != _PERIOD - 1


def _layer_specs(
    tp_size: int, geometry: Geometry, vllm_config: VllmConfig | None = None
) -> dict[str, KVCacheSpec]:
    # Late, because vLLM takes seconds to load and naming the preset should not.
    import torch  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import FullAttentionSpec  # noqa: PLC0415

    sizes = PRESET.sizes(geometry)
    assert sizes.state is not None
    layers = [
        Layer(f"model.layers.{layer}.linear_attn", True)
        if _is_recurrent(layer)
        else Layer(f"model.layers.{layer}.self_attn.attn", False)
        for layer in range(sizes.num_layers)
    ]
    attention = partial(
        FullAttentionSpec,
        num_kv_heads=heads_per_rank(sizes.num_kv_heads, tp_size),
        head_size=sizes.head_size,
        dtype=torch.bfloat16,
    )
    return hybrid_specs(
        layers,
        attention,
        sizes.state,
        tp_size=tp_size,
        block_size=PRESET.block_size,
        vllm_config=vllm_config,
    )


_DRAFTER_LAYERS: dict[Geometry, int] = {"reduced": 2, "real": 12}

PRESET = ModelPreset(
    name="qwen-hybrid",
    summary="Qwen3.5-like: GDN states, three cache groups, and one group with full attention",
    attention="full (grouped-query) and recurrent (GDN)",
    block_size=16,
    # The reduced sizes give a block that is no power of two, as the real ones do.
    dimensions={
        "reduced": _dimensions(2 * _PERIOD, 10, StateDimensions(16, 32, 4, 4)),
        "real": _dimensions(12 * _PERIOD, 256, StateDimensions(16, 32, 128, 128)),
    },
    layer_specs=_layer_specs,
    # As for grouped queries in general: AITER unified attention's choice with a connector first.
    supported_layouts=("LBHNC", "LBNHC", "BLNHC", "BLHNC", "BHLNC", "LHBNC"),
    num_groups=_PERIOD,
    drafters={
        "mtp": Drafter(
            "Qwen3_5MTP",
            layers={
                geometry: {"mtp.layers.0.self_attn.attn": "model.layers.3.self_attn.attn"}
                for geometry in GEOMETRIES
            },
            hf_config={"mtp_num_hidden_layers": 1},
        ),
        # Layers with sliding windows, which share no cache group with the model's. As many as the
        # model has with attention: vLLM makes all groups as large as the smallest one.
        "dspark": Drafter(
            "Qwen3DSparkModel",
            layers={
                geometry: {
                    f"draft.layers.{number}.self_attn.attn": "model.layers.3.self_attn.attn"
                    for number in range(count)
                }
                for geometry, count in _DRAFTER_LAYERS.items()
            },
            hf_config={"model_type": "qwen3"},
            window=512,
        ),
    },
)
