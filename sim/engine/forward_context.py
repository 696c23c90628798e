"""What a connector finds in vLLM's forward context: the layers with their caches, and where the
batch writes to.

Attention metadata is made when somebody asks for it, which in most steps is nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadata
from vllm.v1.attention.backend import AttentionMetadata
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    CircularBufferSpec,
    KVCacheConfig,
    KVCacheSpec,
    MLAAttentionSpec,
    UniformTypeKVCacheSpecs,
)

from sim.device import Stream
from sim.engine.batch import Batch
from sim.engine.memory import BlockArray


@dataclass(frozen=True)
class CacheLayer:
    """A layer of the model as ``ForwardContext.no_compile_layers`` shows it."""

    layer_name: str
    kv_cache: Any


class _Written:
    """Attention metadata of one cache group in one pass: which slots the batch writes.

    Where a chunk begins is known on the device; who asks for slots waits for the pass before.
    """

    def __init__(self, stream: Stream, batch: Batch, group: int, block_size: int) -> None:
        self._stream = stream
        self._batch = batch
        self._group = group
        self._block_size = block_size

    @property
    def num_reqs(self) -> int:
        return len(self._batch.chunks)

    @property
    def num_actual_tokens(self) -> int:
        return self._batch.num_tokens

    @cached_property
    def slot_mapping(self) -> torch.Tensor:
        """By token of the batch, block id times block size plus offset. int64."""
        self._stream.synchronize()
        self._batch.begin()
        parts = []
        for chunk in self._batch.chunks:
            index, offset = np.divmod(np.arange(chunk.start, chunk.end), self._block_size)
            ids = chunk.state.tables[self._group].ids
            parts.append(ids[self._in_table(index)] * self._block_size + offset)
        return torch.from_numpy(np.concatenate(parts))

    def _in_table(self, index: BlockArray) -> BlockArray:
        """Where in the block table the blocks are that positions would have one after another."""
        return index


class _Metadata(_Written, AttentionMetadata):
    """Of layers with keys and values."""


class _LatentMetadata(_Written, MLACommonMetadata[Any]):
    """Of layers with latent attention, which connectors tell by their class."""


class _RingMetadata(_Metadata):
    """Of rings, which have one block for all positions."""

    def _in_table(self, index: BlockArray) -> BlockArray:
        return np.zeros_like(index)


class _SlotMappings(dict[str, torch.Tensor]):
    """Slot mappings by layer, made when they are asked for."""

    def __init__(self, metadata: Mapping[str, _Written]) -> None:
        super().__init__()
        self._metadata = metadata

    def __missing__(self, layer: str) -> torch.Tensor:
        return self._metadata[layer].slot_mapping


class ForwardContexts:
    """Makes the forward context of each pass of one rank.

    Args:
        stream: of the rank's device.
        config: of the rank's caches.
        caches: what the connector was given, by layer.
        drafted: the layers that the drafter runs, and not the model.
    """

    def __init__(
        self,
        stream: Stream,
        config: KVCacheConfig,
        caches: Mapping[str, Any],
        drafted: Set[str] = frozenset(),
    ) -> None:
        self._stream = stream
        self._groups = [group.layer_names for group in config.kv_cache_groups]
        self._makers = [_maker(group.kv_cache_spec) for group in config.kv_cache_groups]
        specs = {
            layer: _spec_of(group.kv_cache_spec, layer)
            for group in config.kv_cache_groups
            for layer in group.layer_names
        }
        in_order = sorted(specs, key=_position)
        wrapped = [layer for layer in in_order if _is_wrapped(layer, specs[layer])]
        self.layers = [layer for layer in in_order if layer not in drafted]
        """All layers of the model with a cache, in its order."""
        self.hooked = [layer for layer in wrapped if layer not in drafted]
        """Those that vLLM's wrapper for connectors is put around."""
        self.hooked_of_drafter = [layer for layer in wrapped if layer in drafted]
        self.no_compile_layers = {name: CacheLayer(name, caches[name]) for name in in_order}

    def of(self, batch: Batch) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Attention metadata and slot mappings by layer."""
        metadata: dict[str, Any] = {}
        for group, (layers, make) in enumerate(zip(self._groups, self._makers, strict=True)):
            metadata.update(dict.fromkeys(layers, make(self._stream, batch, group)))
        return metadata, _SlotMappings(metadata)


def _maker(spec: KVCacheSpec) -> Callable[[Stream, Batch, int], _Written]:
    first = next(iter(_specs_in(spec)))
    kind: type[_Written] = _Metadata
    if isinstance(first, MLAAttentionSpec):
        kind = _LatentMetadata
    elif isinstance(first, CircularBufferSpec):
        kind = _RingMetadata
    return lambda stream, batch, group: kind(stream, batch, group, spec.block_size)


def _specs_in(spec: KVCacheSpec) -> Iterable[KVCacheSpec]:
    return spec.kv_cache_specs.values() if isinstance(spec, UniformTypeKVCacheSpecs) else (spec,)


def _spec_of(spec: KVCacheSpec, layer: str) -> KVCacheSpec:
    return spec.kv_cache_specs[layer] if isinstance(spec, UniformTypeKVCacheSpecs) else spec


def _is_wrapped(layer: str, spec: KVCacheSpec) -> bool:
    """Attention layers only: neither recurrent layers, nor the caches of an indexer."""
    is_attention = isinstance(spec, AttentionSpec) and not isinstance(spec, CircularBufferSpec)
    return is_attention and ".indexer." not in layer


def _position(layer: str) -> tuple[int, bool, str]:
    """Layers by number; an indexer runs before the attention that it serves."""
    number = next((int(part) for part in layer.split(".") if part.isdecimal()), 0)
    return number, ".indexer." not in layer, layer
