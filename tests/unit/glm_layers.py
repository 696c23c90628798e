"""vLLM's own GLM-5.3-Flash layers, as far as they can be asked for their cache specs on a CPU.

They are made without running the constructors, which want a process group and weights.
"""

from __future__ import annotations

import os
import sys
import types
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import sim.model.config  # noqa: F401  # prepares vLLM's variables

import vllm  # isort: skip

# The package's __init__ wants torchvision, for images.
_package = types.ModuleType("vllm.models.glm5next")
_package.__path__ = [os.path.join(os.path.dirname(vllm.__file__), "models", "glm5next")]
sys.modules.setdefault(_package.__name__, _package)

from vllm.config import VllmConfig  # noqa: E402
from vllm.model_executor.layers.attention.mla_attention import MLAAttention  # noqa: E402
from vllm.models.glm5next.common.attention import (  # noqa: E402
    Glm5NextIndexerCache,
    Glm5NextTailCache,
)
from vllm.models.glm5next.common.kda import Glm5NextLinearAttention  # noqa: E402
from vllm.models.glm5next.nvidia import sparse_indexer as kpool_prefill  # noqa: E402, F401
from vllm.v1.attention.backends.mla.rocm_aiter_mla_sparse import (  # noqa: E402
    ROCMAiterMLASparseBackend,
)
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheSpec  # noqa: E402
from vllm.v1.worker.utils import customize_attention_spec  # noqa: E402


def specs_of_layers(config: VllmConfig, tp_size: int, num_drafters: int = 0) -> dict[str, Any]:
    """What vLLM's worker collects from the model's layers, in the order of their registration."""
    model = config.model_config.hf_text_config
    layers: dict[str, tuple[Any, bool]] = {}
    for number in range(model.num_hidden_layers + num_drafters):
        is_drafter = number >= model.num_hidden_layers
        name = f"model.layers.{number}.self_attn"
        if is_drafter or model.layer_types[number] == "indexed_attention":
            for suffix, layer in _attention(config).items():
                layers[f"{name}{suffix}"] = layer, is_drafter
        else:
            layers[name] = _recurrent(config, tp_size), False
    return {
        name: _as_collected(layer, config, is_drafter)
        for name, (layer, is_drafter) in layers.items()
    }


def _as_collected(layer: Any, config: VllmConfig, is_drafter: bool) -> KVCacheSpec:
    spec = layer.get_kv_cache_spec(config)
    if isinstance(spec, AttentionSpec):
        spec = customize_attention_spec(layer.get_attn_backend(), spec)
    return replace(spec, is_draft=True) if is_drafter else spec


def _attention(config: VllmConfig) -> dict[str, Any]:
    model = config.model_config.hf_text_config
    common = {"cache_config": config.cache_config, "_index_kpool": model.index_kpool}
    entry_size = model.index_head_dim + -(-model.index_head_dim // 128) * 4
    top_k = -(-(model.index_topk + model.index_kpool - 1) // 128) * 128
    return {
        ".indexer.k_cache": _bare(
            Glm5NextIndexerCache,
            head_dim=entry_size,
            dtype=torch.uint8,
            **common,
        ),
        ".indexer.tail_cache": _bare(
            Glm5NextTailCache, head_dim=model.index_head_dim, dtype=torch.bfloat16, **common
        ),
        ".attn": _bare(
            MLAAttention,
            kv_cache_dtype="auto",
            head_size=model.kv_lora_rank + model.qk_rope_head_dim,
            sliding_window=None,
            topk_buffer_width=top_k,
            indexer=object(),
            non_causal_multi_token_decode=False,
            attn_backend=ROCMAiterMLASparseBackend,
        ),
    }


def _recurrent(config: VllmConfig, tp_size: int) -> Any:
    model = config.model_config.hf_text_config
    return _bare(
        Glm5NextLinearAttention,
        tp_size=tp_size,
        num_spec=config.num_speculative_tokens,
        num_heads=model.linear_num_heads,
        head_dim=model.linear_head_dim,
        conv_size=model.linear_conv_kernel_dim,
        model_config=config.model_config,
        cache_config=config.cache_config,
        kda_prefill_backend="triton",
    )


def _bare(layer_class: Any, **attributes: Any) -> Any:
    layer = layer_class.__new__(layer_class)
    nn.Module.__init__(layer)
    for name, value in attributes.items():
        object.__setattr__(layer, name, value)
    return layer
