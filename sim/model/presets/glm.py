"""GLM-5.3-Flash-like models: KDA states, latent attention, and an indexer that pools tokens.

Three layers of Kimi delta attention for each latent one; beside every latent cache lie an indexer's
entries, one for a group of tokens, and a ring for the tokens of the group that is not complete.
vLLM packs all layers of a block behind each other, which no other preset has. This makes presets;
it is none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sim.model.presets.base import (
    Dimensions,
    Drafter,
    Geometry,
    IndexerDimensions,
    ModelPreset,
    StateDimensions,
)
from sim.model.presets.hybrid import attention_and_state, backend_class
from sim.model.speculation import Speculation

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec

_HEADS = 64
_PERIOD = 4  # the last layer of each four has attention
_TOP_K = 2048
_INDEXER_BACKEND = "vllm.v1.attention.backends.mla.indexer.Glm5NextIndexerBackend"
_RING_BACKEND = "vllm.v1.attention.backends.mla.indexer.KpoolTailBackend"
_LATENT_BACKEND = "ROCM_AITER_MLA_SPARSE"
_CACHES = (".indexer.k_cache", ".indexer.tail_cache", ".attn")
"""Of an attention layer, in the order in which vLLM's layers register themselves."""
_KERNEL_ENTRIES = 32  # of the indexer's kernels, which take whole pages of entries


def glm_preset(
    name: str,
    summary: str,
    tokens_per_entry: int,
    *,
    reduced_latent: int,
    speculation: Speculation | None = None,
) -> ModelPreset:
    """A model whose indexer pools ``tokens_per_entry`` tokens (its ``index_kpool``).

    ``reduced_latent`` is the size of the reduced geometry's latent. It decides how many tokens a
    block needs to hold a state.
    """
    small, large = (IndexerDimensions(tokens_per_entry, head_size) for head_size in (8, 128))
    dimensions: dict[Geometry, Dimensions] = {
        # Two periods and a layer: as many state groups as in the whole model, and one shorter.
        "reduced": _dimensions(2 * _PERIOD + 1, reduced_latent, 4, small),
        "real": _dimensions(11 * _PERIOD + 1, 512, 128, large),
    }
    return ModelPreset(
        name=name,
        summary=summary,
        attention="latent (MLA) with a pooling indexer, and recurrent (KDA)",
        block_size=_block_size(tokens_per_entry),
        dimensions=dimensions,
        layer_specs=partial(_layer_specs, dimensions),
        supported_layouts=("BLHNC",),  # the ring's backend takes no other
        num_groups=6,
        backends=(_INDEXER_BACKEND, _RING_BACKEND, _LATENT_BACKEND),
        drafters={"mtp": _mtp(dimensions)},
        speculation=speculation,
    )


def _mtp(dimensions: dict[Geometry, Dimensions]) -> Drafter:
    """One more attention layer behind the others, for any number of drafts."""
    (first_attention,) = (_layer(n) for n in range(_PERIOD) if _has_attention(n))
    return Drafter(
        "Glm5NextMTPModel",
        layers={
            geometry: {
                f"{_layer(sizes.num_layers)}{cache}": f"{first_attention}{cache}"
                for cache in _CACHES
            }
            for geometry, sizes in dimensions.items()
        },
        hf_config={"num_nextn_predict_layers": 1},
        multimodal_type="glm5_next",
    )


def _layer(number: int) -> str:
    return f"model.layers.{number}.self_attn"


def _block_size(tokens_per_entry: int) -> int:
    """Of which vLLM takes multiples: whole kernel pages of the indexer, and of latent caches."""
    return max(128, _KERNEL_ENTRIES * tokens_per_entry)


def _dimensions(
    num_layers: int, latent: int, state_size: int, indexer: IndexerDimensions
) -> Dimensions:
    return Dimensions(
        num_layers=num_layers,
        num_kv_heads=1,
        head_size=latent,
        hf_config={
            "model_type": "glm5_next_text",
            "hidden_size": 8 * latent,
            "intermediate_size": 24 * latent,
            "moe_intermediate_size": 4 * latent,
            "num_hidden_layers": num_layers,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _HEADS,
            "kv_lora_rank": latent,
            "q_lora_rank": 3 * latent,
            "qk_rope_head_dim": 0,
            "qk_nope_head_dim": latent // 2,
            "v_head_dim": latent // 2,
            "layer_types": [
                "indexed_attention" if _has_attention(layer) else "linear_attention"
                for layer in range(num_layers)
            ],
            "index_topk": _TOP_K,
            "index_head_dim": indexer.head_size,
            "index_n_heads": 32,
            "index_kpool": indexer.tokens_per_entry,
            "linear_num_heads": _HEADS,
            "linear_head_dim": state_size,
            "linear_conv_kernel_dim": 4,
            "vocab_size": 154_880,
        },
        state=StateDimensions(_HEADS, _HEADS, state_size, state_size),
        indexer=indexer,
    )


def _has_attention(layer: int) -> bool:
    return layer % _PERIOD == _PERIOD - 1


def _layer_specs(
    dimensions: dict[Geometry, Dimensions],
    tp_size: int,
    geometry: Geometry,
    vllm_config: VllmConfig | None = None,
) -> dict[str, KVCacheSpec]:
    sizes = dimensions[geometry]
    assert sizes.state is not None
    assert sizes.indexer is not None
    latent, state = attention_and_state(
        partial(_latent_spec, sizes),
        sizes.state,
        tp_size=tp_size,
        block_size=_block_size(sizes.indexer.tokens_per_entry),
        vllm_config=vllm_config,
    )
    drafts = vllm_config.num_speculative_tokens if vllm_config else 0
    entries, ring = (
        _entries_spec(sizes.indexer, latent.block_size),
        _ring_spec(sizes.indexer, drafts),
    )
    specs: dict[str, KVCacheSpec] = {}
    for number in range(sizes.num_layers):
        if _has_attention(number):
            of_layer = zip(_CACHES, (entries, ring, latent), strict=True)
            specs |= {f"{_layer(number)}{cache}": spec for cache, spec in of_layer}
        else:
            specs[_layer(number)] = state
    return specs


def _latent_spec(sizes: Dimensions, block_size: int) -> KVCacheSpec:
    import torch  # noqa: PLC0415
    from vllm.utils.math_utils import round_up  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import MLAAttentionSpec  # noqa: PLC0415

    assert sizes.indexer is not None
    selected = _TOP_K + sizes.indexer.tokens_per_entry - 1  # the last group need not be complete
    spec = MLAAttentionSpec(
        block_size=block_size,
        num_kv_heads=1,
        max_tp_shards=1,  # every rank holds the whole latent, whatever tp_size is
        head_size=sizes.head_size,
        dtype=torch.bfloat16,
        cache_dtype_str="auto",
        topk_buffer_width=round_up(selected, 128),
        is_index_group_leader=True,
    )
    return _customized(_LATENT_BACKEND, spec)


def _entries_spec(indexer: IndexerDimensions, block_size: int) -> KVCacheSpec:
    import torch  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import MLAAttentionSpec, SparseCacheRole  # noqa: PLC0415

    spec = MLAAttentionSpec(
        block_size=block_size,
        num_kv_heads=1,
        max_tp_shards=1,
        head_size=indexer.entry_size,
        dtype=torch.uint8,
        cache_role=SparseCacheRole.INDEXER,
        tokens_per_state=indexer.tokens_per_entry,
    )
    return _customized(_INDEXER_BACKEND, spec)


def _ring_spec(indexer: IndexerDimensions, num_speculative_tokens: int) -> KVCacheSpec:
    import torch  # noqa: PLC0415
    from vllm.utils.math_utils import cdiv, next_power_of_2  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import CircularBufferSpec  # noqa: PLC0415

    group = indexer.tokens_per_entry
    spec = CircularBufferSpec(
        block_size=group * next_power_of_2(cdiv(group + num_speculative_tokens, group)),
        num_kv_heads=2,  # a token's key, and its gate score
        head_size=indexer.head_size,
        head_size_v=0,
        dtype=torch.bfloat16,
        dcp_sharded=False,
    )
    return _customized(_RING_BACKEND, spec)


def _customized(backend: str, spec: Any) -> KVCacheSpec:
    """With what the backend's kernels ask of packed blocks, as vLLM's worker adds it."""
    from vllm.v1.worker.utils import customize_attention_spec  # noqa: PLC0415

    customized: KVCacheSpec = customize_attention_spec(backend_class(backend), spec)
    return customized
