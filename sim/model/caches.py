"""The KV cache memory of one rank: vLLM's tensor views, and the same bytes by token or state.

The views come from vLLM's own allocation code, over memory that is page-aligned and page-padded as
on ROCm, where one backing buffer becomes one RDMA memory region. Which bytes belong to which block
is asked of `sim.model.footprint`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sim.errors import TestbedError
from sim.model.arena import Arena
from sim.model.content import Bytes
from sim.model.environment import prepare_environment
from sim.model.footprint import Footprint, LayerView
from sim.model.state_content import StateTensor

prepare_environment()  # vLLM reads it while it is imported

import torch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    AttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MambaSpec,
    UniformTypeKVCacheSpecs,
)
from vllm.v1.kv_cache_layout import KVCacheLayout  # noqa: E402
from vllm.v1.worker.utils import allocate_kv_cache  # noqa: E402

PAGE_SIZE = 4096

_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class KVCaches:
    """The cache memory of one rank."""

    config: KVCacheConfig
    layout: str
    backing: torch.Tensor
    """All of the memory, int8, starting and ending at a page boundary."""
    views: Mapping[str, torch.Tensor]
    """What the worker registers with the connector: [blocks, heads, states, content] a layer."""
    specs: Mapping[str, KVCacheSpec]
    """Each layer's own spec, taken out of its group's wrapper if there is one."""
    _slots: Mapping[str, Bytes]
    _states: Mapping[str, Bytes]
    _state_parts: Mapping[str, Mapping[StateTensor, range]]

    @classmethod
    def allocate(cls, config: KVCacheConfig, layout: str, arena: Arena) -> KVCaches:
        """Zeroed memory for `config` out of `arena`, viewed in the layout of that name."""
        supply = _SupplyBacking(arena)
        with supply:
            views = allocate_kv_cache(config, torch.device("cpu"), KVCacheLayout[layout])
        if supply.backing is None:
            raise TestbedError("vLLM allocated its KV cache by other means than torch.zeros")
        specs = _layer_specs(config)
        recurrent = {name: spec for name, spec in specs.items() if isinstance(spec, MambaSpec)}
        return cls(
            config,
            layout,
            supply.backing,
            views,
            specs,
            _slots={
                layer: _by_token(views[layer])
                for layer, spec in specs.items()
                if isinstance(spec, AttentionSpec)
            },
            _states={layer: _by_block(views[layer]) for layer in recurrent},
            _state_parts={layer: _tensor_ranges(spec) for layer, spec in recurrent.items()},
        )

    @property
    def layers(self) -> tuple[str, ...]:
        """The attention layers, group by group: those that have slots."""
        return tuple(self._slots)

    def slots(self, layer: str) -> Bytes:
        """The bytes of an attention layer by token: [blocks, states of a block, heads, content].

        A strided window on the memory: ``slots[block_ids, offsets] = entries`` writes wherever
        the layout puts them. A state is a token, except in caches that pool several into one.
        """
        if layer not in self._slots:
            known = ", ".join(self._slots)
            raise KeyError(f"no attention layer {layer!r} in this cache; there are: {known}")
        return self._slots[layer]

    @property
    def state_layers(self) -> tuple[str, ...]:
        """The recurrent layers, group by group: those that have states."""
        return tuple(self._states)

    def states(self, layer: str) -> Bytes:
        """The bytes of a recurrent layer by block: [blocks, bytes of a state].

        A strided window on the memory, without the padding of the pages.
        """
        return self._of_recurrent(layer, self._states)

    def state_parts(self, layer: str) -> Mapping[StateTensor, range]:
        """Where the tensors of a state of a recurrent layer lie within its bytes."""
        return self._of_recurrent(layer, self._state_parts)

    def _of_recurrent(self, layer: str, values: Mapping[str, _Value]) -> _Value:
        if layer not in values:
            known = ", ".join(values) or "none"
            raise KeyError(f"no recurrent layer {layer!r} in this cache; there are: {known}")
        return values[layer]

    def footprint(self) -> Footprint:
        """Where the blocks of every layer lie in the backing."""
        return Footprint({name: self._layer_view(view) for name, view in self.views.items()})

    def _layer_view(self, view: torch.Tensor) -> LayerView:
        by_byte = view.view(torch.uint8)
        offset = view.data_ptr() - self.backing.data_ptr()
        return LayerView(offset, tuple(by_byte.shape), by_byte.stride())


def _layer_specs(config: KVCacheConfig) -> dict[str, KVCacheSpec]:
    specs: dict[str, KVCacheSpec] = {}
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        is_wrapper = isinstance(spec, UniformTypeKVCacheSpecs)
        for layer in group.layer_names:
            specs[layer] = spec.kv_cache_specs[layer] if is_wrapper else spec
    return specs


def _by_token(view: torch.Tensor) -> Bytes:
    by_head: Bytes = view.view(torch.uint8).numpy()
    return by_head.transpose(0, 2, 1, 3)


def _by_block(view: torch.Tensor) -> Bytes:
    pages: Bytes = view.view(torch.uint8).numpy()
    return pages[:, 0, 0, :]


def _tensor_ranges(spec: MambaSpec) -> dict[StateTensor, range]:
    """The tensors lie one behind the other, as vLLM's layers take a page apart."""
    ranges: dict[StateTensor, range] = {}
    start = 0
    names: tuple[StateTensor, ...] = ("conv", "ssm")
    for name, shape, dtype in zip(names, spec.shapes, spec.dtypes, strict=True):
        stop = start + math.prod(shape) * dtype.itemsize
        ranges[name] = range(start, stop)
        start = stop
    return ranges


class _SupplyBacking(TorchFunctionMode):
    """While active, hands page-aligned memory to the one ``torch.zeros`` call of the allocator.

    vLLM pads to whole pages on ROCm only, and torch's CPU memory is not page-aligned.
    """

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self._arena = arena
        self.backing: torch.Tensor | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not torch.zeros:
            return func(*args, **(kwargs or {}))
        if self.backing is not None:
            raise TestbedError("vLLM allocated its KV cache in more than one piece")
        padded = -(-args[0] // PAGE_SIZE) * PAGE_SIZE
        self.backing = torch.frombuffer(self._arena.allocate(padded), dtype=torch.int8)
        return self.backing
