"""Where blocks lie in memory: what a rank registers and advertises, and byte offsets of blocks.

Addresses are advertised in upstream's form. With all caches in one allocation, which is vLLM's
usual plan, that allocation is one memory region; otherwise every layer is one. Geometry is vLLM's
(`moriio_layout`); a recurrent layer's page is read as one piece, both its states together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_layout import (
    HeadLayout,
    compute_head_slice_offsets,
    get_layer_head_layout,
    get_layer_transfer_geometry,
    is_mla_cache_layer,
    kda_conv_ssm,
    merge_contiguous_offsets,
)
from vllm.v1.kv_cache_interface import KVCacheSpec, MambaSpec

from connector.core.errors import PeerMismatch, UnsupportedModel

Offsets = tuple[list[int], list[int], list[int]]
"""Ours, the peer's, and sizes, in bytes."""


class Blocks(NamedTuple):
    """How the blocks of a layer lie.

    Args:
        pool: how many there are.
        stride: bytes from one to the next.
        size: bytes that are read of each.
    """

    pool: int
    stride: int
    size: int


@dataclass(frozen=True)
class Layer:
    """One layer's cache on this rank.

    Args:
        name: of the layer.
        cache: blocks first, whatever lies between them.
        spec: vLLM's.
        payload_index: the payload entry whose blocks it reads.
        regions: tensors over what is advertised for it; a recurrent layer has two.
        blocks: how its blocks lie.
        head_layout: where its heads lie, if it can be told.
    """

    name: str
    cache: torch.Tensor
    spec: KVCacheSpec
    payload_index: int
    regions: tuple[torch.Tensor, ...]
    blocks: Blocks
    head_layout: HeadLayout | None

    @property
    def is_state(self) -> bool:
        return isinstance(self.spec, MambaSpec)

    def contents(self, blocks: Sequence[int]) -> torch.Tensor:
        """The bytes of some blocks in the host's memory, one row a block, whatever the strides.

        Waits for the device's current stream.
        """
        rows = self.cache[list(blocks)].cpu().contiguous().view(torch.uint8)
        return rows.reshape(len(blocks), -1)[:, : self.blocks.size]


class CacheMemory:
    """All transferred caches of a rank.

    Args:
        caches: by layer, as vLLM registers them.
        specs: of the transferred layers.
        payload_index: of the transferred layers.

    Raises:
        UnsupportedModel: a cache has a layout that cannot be addressed.
    """

    def __init__(
        self,
        caches: Mapping[str, torch.Tensor],
        specs: Mapping[str, KVCacheSpec],
        payload_index: Mapping[str, int],
    ) -> None:
        missing = [name for name in payload_index if name not in caches]
        if missing:
            raise UnsupportedModel(f"vLLM registered no cache for the layer {missing[0]}")
        self.layers = [
            _layer(name, cache, specs, payload_index[name])
            for name, cache in caches.items()
            if name in payload_index
        ]
        counts = {layer.name: layer.cache.shape[0] for layer in self.layers}
        self.num_blocks = self._same(counts, "blocks")
        storages = {layer.cache.untyped_storage().data_ptr() for layer in self.layers}
        self.backing = _whole_storage(self.layers[0].cache) if len(storages) == 1 else None

    @property
    def base_addresses(self) -> list[int]:
        """Of all advertised regions, in order of the layers."""
        return [region.data_ptr() for layer in self.layers for region in layer.regions]

    def read_offsets(
        self,
        layer: Layer,
        ours: Sequence[int],
        theirs: Sequence[int],
        peer_blocks: int,
        peer_layout: HeadLayout | None,
    ) -> Offsets:
        """Byte offsets that read blocks of one layer, relative to the layer's start on each side.

        Args:
            layer: to read.
            ours: destination blocks.
            theirs: source blocks, as many.
            peer_blocks: blocks of the peer's pool.
            peer_layout: of the peer's heads, if it advertises it.

        Raises:
            ValueError: a block id is outside one of the pools.
        """
        pool, stride, size = layer.blocks
        _check_pools(ours, pool, theirs, peer_blocks)
        mine = layer.head_layout
        if mine is None or peer_layout is None or (mine.is_dense and mine == peer_layout):
            offsets: Offsets = merge_contiguous_offsets(
                [block * stride for block in ours],
                [block * stride for block in theirs],
                [size] * len(ours),
            )
            return offsets
        if mine.num_heads != peer_layout.num_heads:
            raise PeerMismatch(
                f"{layer.name} has {mine.num_heads} heads a rank here and {peer_layout.num_heads} "
                "there"
            )
        sources, targets, sizes = compute_head_slice_offsets(
            peer_layout, mine, list(theirs), list(ours), 0, 0, mine.num_heads
        )
        return targets, sources, sizes

    def layout(self) -> list[dict[str, Any]]:
        """How each layer's blocks lie, for people: bytes, and the block's shape."""
        return [
            {
                "layer": layer.name,
                "payload": layer.payload_index,
                "block_bytes": layer.blocks.size,
                "stride_bytes": layer.blocks.stride,
                "block_shape": [int(size) for size in layer.cache.shape[1:]],
            }
            for layer in self.layers
        ]

    def geometry(self) -> dict[str, Any]:
        """What makes a block's bytes mean the same elsewhere, by layer (for the fingerprint)."""
        return {layer.name: _geometry(layer) for layer in self.layers}

    def _same(self, counts: Mapping[str, int], what: str) -> int:
        values = sorted(set(counts.values()))
        if len(values) != 1:
            raise UnsupportedModel(f"layers have different numbers of {what}: {values}")
        return values[0]


def contiguous_bytes(tensor: torch.Tensor, num_bytes: int) -> torch.Tensor:
    """``num_bytes`` from the start of ``tensor`` on, as one flat tensor of bytes, not a copy."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    flat.set_(
        tensor.untyped_storage(),
        tensor.storage_offset() * tensor.element_size(),
        (num_bytes,),
        (1,),
    )
    return flat


def _whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    flat.set_(tensor.untyped_storage(), 0, (tensor.untyped_storage().nbytes(),), (1,))
    return flat


def _layer(
    name: str, cache: torch.Tensor, specs: Mapping[str, KVCacheSpec], payload_index: int
) -> Layer:
    spec = specs[name]
    if isinstance(spec, MambaSpec):
        parts = kda_conv_ssm(cache, spec)
        regions = tuple(contiguous_bytes(part, _extent(part)) for part in parts)
        blocks = Blocks(int(cache.shape[0]), _stride_of(cache), int(spec.state_content_size_bytes))
        return Layer(name, cache, spec, payload_index, regions, blocks, None)
    try:
        geometry = get_layer_transfer_geometry(name, cache, specs)
    except ValueError as error:
        raise UnsupportedModel(str(error)) from None
    if geometry.split_kv_regions or geometry.regions_per_block != 1:
        raise UnsupportedModel(
            f"{name} keeps keys and values in separate planes, shape {tuple(cache.shape)}; use an "
            "attention backend with vLLM's standard cache layout"
        )
    region = contiguous_bytes(cache, _extent(cache))
    layout = None
    if not is_mla_cache_layer(specs, name):
        layout = get_layer_head_layout(name, cache, specs)
    stride = int(geometry.block_stride * cache.element_size())
    blocks = Blocks(int(geometry.num_blocks), stride, int(geometry.block_len))
    return Layer(name, cache, spec, payload_index, (region,), blocks, layout)


def _stride_of(cache: torch.Tensor) -> int:
    """Bytes from one block to the next."""
    return int(cache.stride(0) * cache.element_size())


def _extent(tensor: torch.Tensor) -> int:
    """Bytes that block offsets can address, within the allocation."""
    size = tensor.element_size()
    left = tensor.untyped_storage().nbytes() - tensor.storage_offset() * size
    if tensor.stride(0) == max(tensor.stride()):
        return int(min(tensor.shape[0] * tensor.stride(0) * size, left))
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int(min(span * size, left))


def _geometry(layer: Layer) -> list[Any]:
    cache = layer.cache
    return [
        layer.payload_index,
        [int(size) for size in cache.shape[1:]],
        _stride_of(cache),
        str(cache.dtype),
    ]


def _check_pools(
    ours: Sequence[int], our_blocks: int, theirs: Sequence[int], peer_blocks: int
) -> None:
    for side, ids, limit in (("our", ours, our_blocks), ("the peer's", theirs, peer_blocks)):
        if not ids or (min(ids) >= 0 and max(ids) < limit):
            continue
        for block_id in ids:
            if not 0 <= block_id < limit:
                raise ValueError(f"{side} block id {block_id} is outside [0, {limit})")
