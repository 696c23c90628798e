"""What a model preset is. Building one imports no vLLM; asking it for specs does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from sim.errors import UsageError

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec

Geometry = Literal["reduced", "real"]
GEOMETRIES: tuple[Geometry, ...] = get_args(Geometry)
MAX_POSITIONS = 262_144


@dataclass(frozen=True)
class Dimensions:
    """The sizes of one geometry of a model, before it is split over tensor-parallel ranks."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    hf_config: Mapping[str, Any]
    """Contents of the model's config.json, apart from what `ModelPreset` itself states."""


class LayerSpecs(Protocol):
    """Builds one rank's cache specs, in layer order, with vLLM's own spec classes."""

    def __call__(
        self, tp_size: int, geometry: Geometry, vllm_config: VllmConfig | None = None
    ) -> dict[str, KVCacheSpec]:
        """Specs by layer name; the preset's own block size when there is no `vllm_config`."""
        ...


@dataclass(frozen=True, eq=False)
class ModelPreset:
    """A model known to the testbed, by its cache structure. One object a model."""

    name: str
    summary: str
    attention: str
    block_size: int
    """Tokens per cache block, as production uses for this model."""
    dimensions: Mapping[Geometry, Dimensions]
    layer_specs: LayerSpecs
    supported_layouts: tuple[str, ...]
    """KV cache layouts that the model's attention backends accept, most preferred first."""
    dtype: str = "bfloat16"
    max_positions: int = MAX_POSITIONS

    def sizes(self, geometry: Geometry) -> Dimensions:
        """The dimensions of `geometry`; UsageError if there is no such geometry."""
        if geometry not in self.dimensions:
            known = ", ".join(self.dimensions)
            raise UsageError(f"model {self.name} has no geometry {geometry!r}; use one of: {known}")
        return self.dimensions[geometry]

    def bytes_per_token(self, tp_size: int = 1, geometry: Geometry = "reduced") -> Fraction:
        """Cache bytes that one token adds on one rank, over all layers."""
        specs = self.layer_specs(tp_size, geometry)
        pages = (Fraction(spec.page_size_bytes, spec.block_size) for spec in specs.values())
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


def heads_per_rank(num_kv_heads: int, tp_size: int) -> int:
    """KV heads on each rank, as vLLM splits (or repeats) them; UsageError if it cannot."""
    if tp_size < 1 or (num_kv_heads % tp_size and tp_size % num_kv_heads):
        raise UsageError(
            f"tp_size {tp_size} does not fit {num_kv_heads} KV heads: one must divide the other"
        )
    return max(1, num_kv_heads // tp_size)
