"""What a model preset is. Building one imports no vLLM; asking it for specs does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from sim.errors import UsageError
from sim.model.speculation import Speculation
from sim.model.state_content import StatePiece
from sim.model.weights import Weights

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec

Geometry = Literal["reduced", "real"]
Dtype = Literal["bfloat16", "float16"]
CacheDtype = Literal["auto", "bfloat16", "float16", "fp8_e4m3", "fp8_e5m2"]
"""Of vLLM's; both fp8 ones are bytes to everybody but the kernels."""
GEOMETRIES: tuple[Geometry, ...] = get_args(Geometry)
MAX_POSITIONS = 262_144


@dataclass(frozen=True)
class StateDimensions:
    """Recurrent layers with a gated delta rule behind a short convolution (GDN, KDA)."""

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    conv_kernel_size: int = 4

    def pieces(
        self, tp_size: int, rank: int, num_speculative_tokens: int = 0
    ) -> tuple[StatePiece, ...]:
        """The state of ``rank``: the convolution's last inputs by head, then a matrix per head."""
        keys = _heads_of_rank(self.key_heads, tp_size, rank)
        values = _heads_of_rank(self.value_heads, tp_size, rank)
        rows = self.conv_kernel_size - 1 + num_speculative_tokens
        key, value = (size * rows * _CONV_BYTES for size in (self.key_size, self.value_size))
        matrix = self.value_size * self.key_size * _SSM_BYTES
        return (
            *(StatePiece("conv", "query", head, key) for head in keys),
            *(StatePiece("conv", "key", head, key) for head in keys),
            *(StatePiece("conv", "value", head, value) for head in values),
            *(StatePiece("ssm", "state", head, matrix) for head in values),
        )


@dataclass(frozen=True)
class IndexerDimensions:
    """A sparse-attention indexer whose cache has one entry for several tokens (kpool).

    The tokens of a group that is not complete wait in a ring: a key and a gate score for each.
    """

    tokens_per_entry: int
    head_size: int
    """Of a token's key, and of its gate score."""

    @property
    def entry_size(self) -> int:
        """Bytes of an entry: the pooled key in 8-bit floats, and a scale for every 128 of them."""
        return self.head_size + _SCALE_BYTES * -(-self.head_size // _KEYS_PER_SCALE)


_KEYS_PER_SCALE = 128
_SCALE_BYTES = 4
_CONV_BYTES = 2  # bfloat16, like the activations
_SSM_BYTES = 4  # float32: a recurrence accumulates


@dataclass(frozen=True)
class Dimensions:
    """The sizes of one geometry of a model, before it is split over tensor-parallel ranks."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    hf_config: Mapping[str, Any]
    """Contents of the model's config.json, apart from what `ModelPreset` itself states."""
    state: StateDimensions | None = None
    """Of the recurrent layers of a hybrid model."""
    indexer: IndexerDimensions | None = None
    """Beside each attention layer of a model with sparse attention."""


class LayerSpecs(Protocol):
    """Builds one rank's cache specs, in layer order, with vLLM's own spec classes."""

    def __call__(
        self, tp_size: int, geometry: Geometry, vllm_config: VllmConfig | None = None
    ) -> dict[str, KVCacheSpec]:
        """Specs by layer name; the preset's own block size when there is no `vllm_config`."""
        ...


@dataclass(frozen=True)
class Drafter:
    """What a model has, or what there is for it, to speculate with one method."""

    architecture: str
    """vLLM's name of the drafter's class."""
    layers: Mapping[Geometry, Mapping[str, str]]
    """Its layers with a cache, and for each the layer of the model whose cache spec it has: so it
    lies in the KV cache group of that layer, unless it has a window."""
    hf_config: Mapping[str, Any]
    """What its config.json says beyond the model's."""
    window: int | None = None
    """Tokens that its layers attend to, if they do not attend to all. The model's layers do, so
    these have a cache group of their own."""
    multimodal_type: str | None = None
    """The model type of a multimodal model, if vLLM knows the drafter by that only; the rest is
    its text model's configuration then."""


@dataclass(frozen=True, eq=False)
class ModelPreset:
    """A model known to the testbed, by its cache structure. One object a model."""

    name: str
    summary: str
    attention: str
    block_size: int
    """Tokens per cache block, as production uses for this model. The blocks of a hybrid model
    are the smallest multiple of it whose attention page holds a state: `tokens_per_block`."""
    dimensions: Mapping[Geometry, Dimensions]
    layer_specs: LayerSpecs
    supported_layouts: tuple[str, ...]
    """KV cache layouts that the model's attention backends accept, most preferred first."""
    num_groups: int = 1
    """KV cache groups; each needs blocks of its own from the one pool."""
    backends: tuple[str, ...] = ("TRITON_ATTN",)
    """The attention backends whose kernels restrict a hybrid model's block size, in the order of
    its layers: vLLM's names of them, or of their classes where vLLM has no other name."""
    drafters: Mapping[str, Drafter] = field(default_factory=dict)
    """By vLLM's name of the method."""
    speculation: Speculation | None = None
    """What its engines speculate with, unless a scenario says something else."""
    dtype: Dtype = "bfloat16"
    cache_dtype: CacheDtype = "auto"
    """As vLLM's option: what attention caches hold, ``dtype`` with ``auto``."""
    max_positions: int = MAX_POSITIONS
    weights: Weights | None = None
    """Of the true model, where they have been published."""

    def sizes(self, geometry: Geometry) -> Dimensions:
        """The dimensions of `geometry`; UsageError if there is no such geometry."""
        if geometry not in self.dimensions:
            known = ", ".join(self.dimensions)
            raise UsageError(f"model {self.name} has no geometry {geometry!r}; use one of: {known}")
        return self.dimensions[geometry]

    @property
    def is_hybrid(self) -> bool:
        """Whether some layers are recurrent."""
        return any(sizes.state for sizes in self.dimensions.values())

    def prepare_config(self, vllm_config: VllmConfig) -> None:
        """Do to a configuration what loading the model's layers does to it in production."""
        if self.is_hybrid:
            from sim.model.presets.hybrid import align_states  # noqa: PLC0415  # loads vLLM

            align_states(vllm_config, self.backends)

    def require_chunks(self, caches_whole_prefills: bool) -> None:
        """UsageError when prefixes and states are to be cached without chunked prefill."""
        if self.is_hybrid and caches_whole_prefills:
            raise UsageError(
                f"prefix caching of {self.name} keeps states at the ends of chunks, so vLLM wants "
                "chunked prefill with it: enable both, or turn prefix caching off"
            )

    def require_tp_size(self, tp_size: int, geometry: Geometry) -> None:
        """UsageError when the heads cannot be split over as many ranks."""
        self.kv_heads_of_rank(tp_size, 0, geometry)
        self.state_pieces(tp_size, 0, geometry)

    def drafter(self, method: str) -> Drafter:
        """The drafter for ``method``; UsageError if the model offers none."""
        if method not in self.drafters:
            offered = ", ".join(self.drafters) or "none"
            raise UsageError(
                f"model {self.name} has no drafter for speculation.method {method!r}; "
                f"it offers: {offered} (faultlab models lists what others offer)"
            )
        return self.drafters[method]

    def cache_specs(
        self, tp_size: int, geometry: Geometry, vllm_config: VllmConfig
    ) -> dict[str, KVCacheSpec]:
        """The specs of one rank: of the model's layers, then of its drafter's if it has one."""
        specs = self.layer_specs(tp_size, geometry, vllm_config)
        held = self.dtype if self.cache_dtype == "auto" else self.cache_dtype
        specs = {name: _holding(spec, held) for name, spec in specs.items()}
        speculative = vllm_config.speculative_config
        if speculative is None:
            return specs
        drafter = self.drafter(str(speculative.method))
        for name, like in drafter.layers[geometry].items():
            spec = specs[like] if drafter.window is None else _windowed(specs[like], drafter.window)
            specs[name] = replace(spec, is_draft=True)
        return specs

    def tokens_per_block(
        self,
        tp_size: int = 1,
        geometry: Geometry = "reduced",
        num_speculative_tokens: int = 0,
    ) -> int:
        """Tokens of a cache block of the attention layers, and of prefix caching.

        Speculation makes states larger, and so the blocks that have to hold one.
        """
        specs = self.layer_specs(tp_size, geometry).values()
        tokens: int = max(spec.block_size for spec in specs)
        if not self.is_hybrid or not num_speculative_tokens:
            return tokens
        state = sum(
            piece.size for piece in self.state_pieces(tp_size, 0, geometry, num_speculative_tokens)
        )
        page = Fraction(max(spec.page_size_bytes for spec in specs) * self.block_size, tokens)
        return self.block_size * math.ceil(state / page)

    def state_pieces(
        self,
        tp_size: int,
        rank: int,
        geometry: Geometry = "reduced",
        num_speculative_tokens: int = 0,
    ) -> tuple[StatePiece, ...]:
        """What a state page of a recurrent layer holds on ``rank``; nothing if there is none."""
        state = self.sizes(geometry).state
        return state.pieces(tp_size, rank, num_speculative_tokens) if state else ()

    def bytes_per_token(
        self, tp_size: int = 1, geometry: Geometry = "reduced", method: str | None = None
    ) -> Fraction:
        """Cache bytes that one token adds on one rank, over all layers, the drafter's included.

        As if nothing was ever freed: every state at the end of a block kept, and every token
        that a sliding window has left behind. Rings are left out, because a request has one block
        of them however long it is.
        """
        specs = self.layer_specs(tp_size, geometry)
        drafted = () if method is None else self.drafter(method).layers[geometry].values()
        pages = (
            Fraction(spec.page_size_bytes, spec.block_size)
            for spec in [*specs.values(), *(specs[layer] for layer in drafted)]
            if spec.prefix_cacheable
        )
        return sum(pages, Fraction(0))

    def kv_heads_of_rank(self, tp_size: int, rank: int, geometry: Geometry = "reduced") -> range:
        """The model-wide numbers of the KV heads that `rank` caches.

        With more ranks than heads, neighbouring ranks hold copies of one head; a latent cache is
        the case of a single head.
        """
        heads = self.sizes(geometry).num_kv_heads
        per_rank = heads_per_rank(heads, tp_size)
        if not 0 <= rank < tp_size:
            raise UsageError(f"rank {rank} is outside 0..{tp_size - 1}")
        first = rank * heads // tp_size
        return range(first, first + per_rank)


def _windowed(spec: Any, window: int) -> KVCacheSpec:
    """The same cache of a layer that attends to the last ``window`` tokens only."""
    from vllm.v1.kv_cache_interface import SlidingWindowSpec  # noqa: PLC0415  # loads vLLM

    return SlidingWindowSpec(
        block_size=spec.block_size,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        dtype=spec.dtype,
        sliding_window=window,
    )


def _holding(spec: KVCacheSpec, dtype: str) -> KVCacheSpec:
    """``spec`` with entries of another type, if it is an attention cache of the usual one."""
    import torch  # noqa: PLC0415  # late, as in presets
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import AttentionSpec  # noqa: PLC0415

    if not isinstance(spec, AttentionSpec) or spec.dtype != torch.bfloat16:
        return spec
    return replace(spec, dtype=STR_DTYPE_TO_TORCH_DTYPE[dtype])


def _heads_of_rank(heads: int, tp_size: int, rank: int) -> range:
    """The state heads of ``rank``, which are split and never repeated."""
    if tp_size < 1 or heads % tp_size:
        raise UsageError(
            f"tp_size {tp_size} does not fit {heads} heads of recurrent layers: it must divide them"
        )
    if not 0 <= rank < tp_size:
        raise UsageError(f"rank {rank} is outside 0..{tp_size - 1}")
    per_rank = heads // tp_size
    return range(rank * per_rank, (rank + 1) * per_rank)


def heads_per_rank(num_kv_heads: int, tp_size: int) -> int:
    """KV heads on each rank, as vLLM splits (or repeats) them; UsageError if it cannot."""
    if tp_size < 1 or (num_kv_heads % tp_size and tp_size % num_kv_heads):
        raise UsageError(
            f"tp_size {tp_size} does not fit {num_kv_heads} KV heads: one must divide the other"
        )
    return max(1, num_kv_heads // tp_size)
