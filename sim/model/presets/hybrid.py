"""Cache specs of hybrid models: attention layers, and recurrent ones with a state for each block.

A state lives in a page of the same size as an attention page, so the attention block is made
large enough to hold a state, and the state is padded to the page. Everything here is late in
importing vLLM, which takes seconds and which naming a preset should not need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.model.presets.base import StateDimensions

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec


@dataclass(frozen=True)
class Layer:
    """A layer with a cache."""

    name: str
    is_recurrent: bool


def hybrid_specs(
    layers: Sequence[Layer],
    attention: Callable[..., KVCacheSpec],
    state: StateDimensions,
    *,
    tp_size: int,
    block_size: int,
    vllm_config: VllmConfig | None,
) -> dict[str, KVCacheSpec]:
    """The specs of ``layers``, in their order.

    Args:
        layers: of the model.
        attention: makes the spec of an attention layer; called with ``block_size``.
        state: sizes of the recurrent layers.
        tp_size: ranks that share the heads.
        block_size: of which the attention block is a multiple.
        vllm_config: what `align_states` prepared; without one, what it would prepare for an
            engine with prefix caching.
    """
    attention_spec, state_spec = attention_and_state(
        attention, state, tp_size=tp_size, block_size=block_size, vllm_config=vllm_config
    )
    return {layer.name: state_spec if layer.is_recurrent else attention_spec for layer in layers}


def attention_and_state(
    attention: Callable[..., KVCacheSpec],
    state: StateDimensions,
    *,
    tp_size: int,
    block_size: int,
    vllm_config: VllmConfig | None,
) -> tuple[KVCacheSpec, KVCacheSpec]:
    """The specs of an attention layer and of a recurrent one; arguments as in `hybrid_specs`."""
    if vllm_config is None:
        attention_spec = attention(block_size=_aligned(attention, state, tp_size, block_size))
        return attention_spec, _state_spec(
            state,
            tp_size,
            block_size=attention_spec.block_size,
            page_size_padded=attention_spec.page_size_bytes,
            mamba_cache_mode="align",
        )
    cache = vllm_config.cache_config
    return attention(block_size=cache.block_size), _state_spec(
        state,
        tp_size,
        num_speculative_blocks=vllm_config.num_speculative_tokens,
        block_size=cache.mamba_block_size,
        page_size_padded=cache.mamba_page_size_padded,
        mamba_cache_mode=cache.mamba_cache_mode,
    )


def align_states(vllm_config: VllmConfig, backends: Sequence[str]) -> None:
    """Set cache mode and block sizes of a hybrid model by vLLM's own code.

    In production that code runs when the layers exist and have told their attention backends;
    here ``backends`` are their names.
    """
    from vllm.model_executor.models.config import (  # noqa: PLC0415
        HybridAttentionMambaModelConfig,
        Qwen3_5ForConditionalGenerationConfig,
    )
    from vllm.platforms.interface import Platform  # noqa: PLC0415

    class Loaded(Platform):
        """A platform on which the model's layers have been built."""

        @classmethod
        def _find_non_ssm_backends(cls, vllm_config: VllmConfig) -> list[Any]:
            return [backend_class(name) for name in backends]

    cache = vllm_config.cache_config
    cache.mamba_cache_mode, cache.mamba_block_size = "none", None
    # For every model, because it does nothing unless the model states the type of its states.
    Qwen3_5ForConditionalGenerationConfig.verify_and_update_config(vllm_config)
    HybridAttentionMambaModelConfig.verify_and_update_config(vllm_config)
    Loaded.update_block_size_for_backend(vllm_config)


def backend_class(name: str) -> Any:
    """The attention backend of that name: one of vLLM's names, or the path of a class."""
    from vllm.utils.import_utils import resolve_obj_by_qualname  # noqa: PLC0415
    from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: PLC0415

    return resolve_obj_by_qualname(name) if "." in name else AttentionBackendEnum[name].get_class()


def state_shapes(
    state: StateDimensions, tp_size: int, num_speculative_tokens: int = 0
) -> tuple[tuple[int, ...], ...]:
    """Of the convolution's inputs and of the recurrence, on one rank, as vLLM computes them."""
    from vllm.model_executor.layers.mamba.mamba_utils import (  # noqa: PLC0415
        MambaStateShapeCalculator,
    )

    state.pieces(tp_size, 0)  # a tp_size that does not fit is an error here
    shapes: tuple[tuple[int, ...], ...] = MambaStateShapeCalculator.gated_delta_net_state_shape(
        tp_size,
        state.key_heads,
        state.value_heads,
        state.key_size,
        state.value_size,
        state.conv_kernel_size,
        num_speculative_tokens,
    )
    return shapes


def state_dtypes() -> tuple[Any, ...]:
    """Of the convolution's inputs and of the recurrence."""
    import torch  # noqa: PLC0415

    return torch.bfloat16, torch.float32


def _state_spec(
    state: StateDimensions, tp_size: int, num_speculative_blocks: int = 0, **layout: Any
) -> KVCacheSpec:
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import MambaSpec  # noqa: PLC0415

    return MambaSpec(
        shapes=state_shapes(state, tp_size, num_speculative_blocks),
        dtypes=state_dtypes(),
        mamba_type=MambaAttentionBackendEnum.GDN_ATTN,
        num_speculative_blocks=num_speculative_blocks,
        **layout,
    )


def _aligned(
    attention: Callable[..., KVCacheSpec], state: StateDimensions, tp_size: int, block_size: int
) -> int:
    """The smallest multiple of ``block_size`` whose attention page holds a state."""
    size = sum(piece.size for piece in state.pieces(tp_size, 0))
    step: int = attention(block_size=block_size).page_size_bytes
    return block_size * -(-size // step)
