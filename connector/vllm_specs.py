"""vLLM's cache configuration, translated into the core's groups.

The worker's configuration wraps groups in ``UniformTypeKVCacheSpecs`` with one spec a layer; the
scheduler's has the wrapper replaced by the first layer's spec. Both give equal groups, except
that only the worker's tells about every layer, so only the worker can refuse a single one.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
    get_kv_cache_spec_sliding_window,
    iter_layer_specs,
)

from connector.core.errors import UnsupportedModel
from connector.core.groups import Group, GroupKind, StateShape, TransferGroups


def transfer_groups(config: KVCacheConfig) -> TransferGroups:
    """The groups of ``config``, a scheduler's or a worker's, that take part in KV transfer.

    Raises:
        UnsupportedModel: a layer cannot be transferred, or one group mixes kinds.
    """
    return TransferGroups(tuple(_group(group) for group in config.transfer_groups))


def layer_specs(config: KVCacheConfig) -> dict[str, KVCacheSpec]:
    """The spec of every transferred layer, seen through the wrapper."""
    specs: dict[str, KVCacheSpec] = {}
    for group in config.transfer_groups:
        inner = getattr(group.kv_cache_spec, "kv_cache_specs", None)
        for layer in group.layer_names:
            specs[layer] = group.kv_cache_spec if inner is None else inner[layer]
    return specs


def _group(group: KVCacheGroupSpec) -> Group:
    layers = tuple(group.layer_names)
    specs = list(iter_layer_specs(group.kv_cache_spec))
    kinds = [_kind(spec, layers) for spec in specs]
    if not kinds or any(kind is not kinds[0] for kind in kinds):
        names = sorted({kind.value for kind in kinds})
        raise UnsupportedModel(
            f"the cache group of {_some(layers)} mixes {', '.join(names) or 'nothing'}; a group "
            "has to hold one kind of layer"
        )
    kind = kinds[0]
    return Group(
        kind=kind,
        layers=layers,
        block_size=group.kv_cache_spec.block_size,
        window=_window(group, layers) if kind is GroupKind.WINDOW else None,
        state=_state(group, specs) if kind is GroupKind.STATE else None,
        is_drafter=all(getattr(spec, "is_draft", False) for spec in specs),
    )


def _kind(spec: KVCacheSpec, layers: tuple[str, ...]) -> GroupKind:
    """What a layer holds. A ring is known by what it is, whatever its class is called."""
    if isinstance(spec, MambaSpec):
        return GroupKind.STATE
    if _is_ring(spec):
        return GroupKind.RING
    if isinstance(spec, SlidingWindowSpec):
        return GroupKind.WINDOW
    if type(spec).__name__ in _NOT_PLAIN or not isinstance(spec, FullAttentionSpec):
        raise UnsupportedModel(
            f"a cache of type {type(spec).__name__} ({_some(layers)}) cannot be transferred; "
            "supported are full attention, sliding window, per-request ring and recurrent state"
        )
    return GroupKind.FULL


_NOT_PLAIN = ("RSWASpec", "SinkFullAttentionSpec", "HiddenStateCacheSpec")
"""Derived from full attention, but with blocks that mean something else."""


def _is_ring(spec: Any) -> bool:
    """One block a request, and never in the prefix cache."""
    if spec.prefix_cacheable:
        return False
    blocks_per_request = getattr(spec, "max_num_blocks_per_req", None)
    if blocks_per_request is None or isinstance(spec, FullAttentionSpec):
        return False
    if not isinstance(spec, SlidingWindowSpec):
        return bool(blocks_per_request(None, 1 << 30) == 1)
    # Other builds have the ring as a sliding window as wide as its only block.
    return bool(spec.sliding_window <= spec.block_size)


def _window(group: KVCacheGroupSpec, layers: tuple[str, ...]) -> int:
    window = get_kv_cache_spec_sliding_window(group.kv_cache_spec)
    if window is None:
        raise UnsupportedModel(f"the layers of {_some(layers)} have windows of different sizes")
    return int(window)


def _state(group: KVCacheGroupSpec, specs: list[Any]) -> StateShape:
    states = [
        StateShape(
            shapes=tuple(tuple(shape) for shape in spec.shapes),
            dtypes=tuple(str(dtype) for dtype in spec.dtypes),
            block_size=spec.block_size,
            page_bytes=spec.page_size_bytes,
            num_scratch=spec.num_speculative_blocks,
        )
        for spec in specs
    ]
    for layer, state in zip(group.layer_names, states, strict=False):
        if state != states[0]:
            raise UnsupportedModel(f"layer {layer} has the state {state}, others {states[0]}")
    return states[0]


def _some(layers: tuple[str, ...]) -> str:
    return f"{layers[0]} and {len(layers) - 1} more" if len(layers) > 1 else ", ".join(layers)
