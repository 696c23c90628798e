from __future__ import annotations

from math import prod
from typing import Any

import pytest
from kv_planning import plan_preset

from sim.model.config import build_vllm_config
from sim.model.presets import GEOMETRIES, PRESETS, Geometry, get_preset
from sim.model.presets.hybrid import state_dtypes, state_shapes

from vllm.config import VllmConfig  # isort: skip  # after sim.model.config prepared vLLM's variables
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_utils import (
    MambaStateDtypeCalculator,
    MambaStateShapeCalculator,
)
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import MambaSpec

HYBRIDS = [name for name, preset in PRESETS.items() if preset.is_hybrid]
every_hybrid = pytest.mark.parametrize("name", HYBRIDS)
every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES)
tp_1_2_and_8 = pytest.mark.parametrize("tp_size", [1, 2, 8])


class Layer(MambaBase):
    """A recurrent layer as vLLM has them, with vLLM's own figures for the two kinds."""

    def __init__(self, config: VllmConfig, name: str, tp_size: int) -> None:
        hf_config, cache = config.model_config.hf_config, config.cache_config
        dtypes = (config.model_config.dtype, cache.mamba_cache_dtype, cache.mamba_ssm_cache_dtype)
        shapes = MambaStateShapeCalculator
        if name != "qwen-hybrid":
            if name == "kimi-linear":
                kda = hf_config.linear_attn_config
                heads, head_size = kda["num_heads"], kda["head_dim"]
            else:
                heads, head_size = hf_config.linear_num_heads, hf_config.linear_head_dim
            self.shape = shapes.kda_state_shape(tp_size, heads, head_size)
            self.dtype = MambaStateDtypeCalculator.kda_state_dtype(*dtypes)
        else:
            self.shape = shapes.gated_delta_net_state_shape(
                tp_size,
                hf_config.linear_num_key_heads,
                hf_config.linear_num_value_heads,
                hf_config.linear_key_head_dim,
                hf_config.linear_value_head_dim,
                hf_config.linear_conv_kernel_dim,
            )
            self.dtype = MambaStateDtypeCalculator.gated_delta_net_state_dtype(*dtypes)

    def get_state_shape(self) -> Any:
        return self.shape

    def get_state_dtype(self) -> Any:
        return self.dtype

    @property
    def mamba_type(self) -> MambaAttentionBackendEnum:
        return MambaAttentionBackendEnum.GDN_ATTN


def build(name: str, geometry: Geometry = "reduced", tp_size: int = 1, **options: Any) -> Any:
    return build_vllm_config(
        get_preset(name),
        num_blocks=9,
        geometry=geometry,
        tp_size=tp_size,
        max_model_len=8192,
        **options,
    )


@every_hybrid
@every_geometry
@tp_1_2_and_8
@pytest.mark.parametrize("is_caching", [True, False])
def test_a_state_is_what_vllms_layers_make_of_the_same_configuration(
    name: str, geometry: Geometry, tp_size: int, is_caching: bool
) -> None:
    """Shapes, types, padding, cache mode and block size all come out of vLLM's code."""
    config = build(name, geometry, tp_size, enable_prefix_caching=is_caching)
    specs = get_preset(name).layer_specs(tp_size, geometry, config)
    state = Layer(config, name, tp_size).get_kv_cache_spec(config)
    states = [spec for spec in specs.values() if isinstance(spec, MambaSpec)]
    assert states
    assert all(spec == state for spec in states)
    assert state.mamba_cache_mode == ("align" if is_caching else "none")
    assert state.block_size == (config.cache_config.block_size if is_caching else 8192)
    attention = [spec for layer, spec in specs.items() if layer.endswith(".attn")]
    assert {spec.page_size_bytes for spec in attention} == {state.page_size_bytes}


@every_hybrid
@every_geometry
@tp_1_2_and_8
def test_sizes_are_known_without_a_configuration(
    name: str, geometry: Geometry, tp_size: int
) -> None:
    """What a preset computes by itself is what vLLM's alignment of block and state comes to."""
    preset = get_preset(name)
    config = build(name, geometry, tp_size)
    assert preset.layer_specs(tp_size, geometry) == preset.layer_specs(tp_size, geometry, config)
    assert preset.tokens_per_block(tp_size, geometry) == config.cache_config.block_size


@every_hybrid
@every_geometry
@tp_1_2_and_8
@pytest.mark.parametrize("num_speculative_tokens", [0, 7])
def test_the_pieces_of_a_state_add_up_to_its_tensors(
    name: str, geometry: Geometry, tp_size: int, num_speculative_tokens: int
) -> None:
    """Every head of every rank exactly once, and as many bytes as vLLM's shapes have."""
    preset = get_preset(name)
    state = preset.sizes(geometry).state
    assert state is not None
    ranks = [
        preset.state_pieces(tp_size, rank, geometry, num_speculative_tokens)
        for rank in range(tp_size)
    ]
    shapes = state_shapes(state, tp_size, num_speculative_tokens)
    sizes = [prod(s) * d.itemsize for s, d in zip(shapes, state_dtypes(), strict=True)]
    for pieces in ranks:
        by_tensor = [sum(p.size for p in pieces if p.tensor == t) for t in ("conv", "ssm")]
        assert by_tensor == sizes
    together = [piece for pieces in ranks for piece in pieces]
    assert len(set(together)) == len(together)
    assert set(together) == set(preset.state_pieces(1, 0, geometry, num_speculative_tokens))


@every_hybrid
@every_geometry
def test_a_page_holds_a_state_and_little_more(name: str, geometry: Geometry) -> None:
    """Reduced sizes keep the ratio of state and block, too: states are padded, not by half."""
    specs = get_preset(name).layer_specs(1, geometry).values()
    for spec in (spec for spec in specs if isinstance(spec, MambaSpec)):
        assert 0.8 < spec.real_page_size_bytes / spec.page_size_bytes <= 1


@every_hybrid
def test_hits_end_at_the_ends_of_blocks(name: str) -> None:
    """All groups that cache prefixes have one block size, so no hit ends within a block."""
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes

    config = build(name)
    _, scheduler, _ = plan_preset(name)
    tokens = get_preset(name).tokens_per_block()
    assert resolve_kv_cache_block_sizes(scheduler, config) == (tokens, tokens)


def test_a_model_without_states_has_no_pieces() -> None:
    """Asking is not an error, so that callers need not tell the kinds of models apart."""
    assert get_preset("llama").state_pieces(1, 0) == ()
    assert not get_preset("gemma-swa").is_hybrid
