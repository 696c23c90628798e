"""The cache memory of one engine: vLLM's views of it, and what its blocks hold."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from hw_tests.process.messages import Device, Digests
from hw_tests.process.shared_mori.memory import SharedArena
from sim.model.caches import KVCaches

import torch  # isort: skip  # after sim.model.caches prepared vLLM's variables
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import allocate_kv_cache


class CacheMemory:
    """Of one rank.

    Args:
        config: the worker's own.
        layout: of vLLM.
        device: where it is allocated.
    """

    def __init__(self, config: KVCacheConfig, layout: KVCacheLayout, device: Device) -> None:
        self._groups = config.kv_cache_groups
        if device == "shared":
            self.views = dict(KVCaches.allocate(config, layout.name, SharedArena()).views)
        else:
            self.views = dict(allocate_kv_cache(config, torch.device(device), layout))
        self.num_blocks = int(next(iter(self.views.values())).shape[0])

    def fill(self, seed: int) -> None:
        """Give every byte a value, the same for the same seed."""
        numbers = torch.Generator().manual_seed(seed)
        storages = {view.untyped_storage().data_ptr(): view for view in self.views.values()}
        for view in storages.values():
            content = torch.empty(0, dtype=torch.uint8, device=view.device)
            content.set_(view.untyped_storage())
            made = torch.randint(0, 256, content.shape, dtype=torch.uint8, generator=numbers)
            content.copy_(made)
        self._settle()

    def write(self, blocks: Sequence[Sequence[int]], seed: int) -> None:
        """Give the blocks of one request, by group, other content, as a forward pass does."""
        numbers = torch.Generator().manual_seed(seed)
        for group, ids in zip(self._groups, blocks, strict=True):
            for layer in group.layer_names:
                for block in filter(None, ids):
                    rows = self.views[layer][block].view(torch.uint8)
                    made = torch.randint(0, 256, rows.shape, dtype=torch.uint8, generator=numbers)
                    rows.copy_(made)
        self._settle()

    def digests(self) -> Digests:
        """Of all blocks of all layers."""
        return {layer: self._digest(layer, range(self.num_blocks)) for layer in self.views}

    def digests_of(self, blocks: Sequence[Sequence[int]]) -> Digests:
        """Of one request's blocks, each in the layers of its group."""
        return {
            layer: self._digest(layer, filter(None, ids))
            for group, ids in zip(self._groups, blocks, strict=True)
            for layer in group.layer_names
        }

    def padding(self) -> list[int]:
        """CRC-32 of the bytes of each allocation that are no layer's."""
        storages = {view.untyped_storage().data_ptr(): view for view in self.views.values()}
        return [self._padding_of(address, view) for address, view in storages.items()]

    def _padding_of(self, address: int, view: torch.Tensor) -> int:
        content = torch.empty(0, dtype=torch.uint8, device=view.device)
        content.set_(view.untyped_storage())
        is_padding = torch.ones(content.shape, dtype=torch.bool)
        for each in self.views.values():
            if each.untyped_storage().data_ptr() == address:
                size = each.element_size()
                strides = [stride * size for stride in each.stride()]
                start = each.storage_offset() * size
                is_padding.as_strided((*each.shape, size), (*strides, 1), start).zero_()
        return zlib.crc32(content.cpu()[is_padding].numpy().tobytes())

    def _settle(self) -> None:
        """A network card does not wait for a GPU's kernels."""
        if any(view.is_cuda for view in self.views.values()):
            torch.cuda.synchronize()

    def _digest(self, layer: str, blocks: Iterable[int]) -> dict[int, int]:
        view: Any = self.views[layer]
        return {
            block: zlib.crc32(view[block].cpu().contiguous().view(torch.uint8).numpy())
            for block in blocks
        }
