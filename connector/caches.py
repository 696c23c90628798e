"""The fingerprint of a rank's caches, and the check of a peer's."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import Any

from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import KVCacheSpec

from connector.core.errors import PeerMismatch
from connector.core.fingerprint import Fingerprint, check_same
from connector.core.groups import TransferGroups
from connector.memory import CacheMemory
from connector.wire import Welcome


def fingerprint_of(
    vllm_config: VllmConfig,
    groups: TransferGroups,
    specs: dict[str, KVCacheSpec],
    memory: CacheMemory,
    backend: str,
) -> Fingerprint:
    """Everything that decides what a block's bytes mean, in plain values."""
    kinds = [f"{group.kind.value}, {group.block_size} tokens" for group in groups.on_wire]
    described: list[dict[str, str]] = []
    spec_of_layer: dict[str, int] = {}
    for layer in memory.layers:
        description = _describe(specs[layer.name])
        if description not in described:
            described.append(description)
        spec_of_layer[layer.name] = described.index(description)
    result: Fingerprint = {
        "groups": kinds,
        "layers": memory.geometry(),
        "specs": described,
        "spec_of_layer": spec_of_layer,
        "cache_dtype": str(vllm_config.cache_config.cache_dtype),
        # Of caches that are bytes to torch, and some are FP8 whatever the cache's dtype: gfx94x
        # and gfx95x write other formats.
        "fp8_format": str(current_platform.fp8_dtype()),
        "attention_backend": backend,
        "num_speculative_tokens": int(vllm_config.num_speculative_tokens),
    }
    if groups.has_state:
        result["tp_size"] = int(vllm_config.parallel_config.tensor_parallel_size)
        result["conv_layout"] = _conv_layout()
        result["mamba_cache_mode"] = str(vllm_config.cache_config.mamba_cache_mode)
    return result


def check_peer(
    ours: Fingerprint, memory: CacheMemory, backend: str, name: str, peer: Welcome
) -> None:
    """Refuse a peer whose caches are not like ours, as far as its handshake tells.

    Raises:
        PeerMismatch: naming every field that differs.
    """
    if peer.fingerprint is not None:
        check_same(name, ours, peer.fingerprint)
    else:
        _check_upstream(ours, memory, backend, name, peer)
    _check_order([layer.name for layer in memory.layers], name, list(peer.descriptors))


def _check_upstream(
    ours: Fingerprint, memory: CacheMemory, backend: str, name: str, peer: Welcome
) -> None:
    metadata = peer.metadata
    layers = [layer.name for layer in memory.layers]
    attention = [layer for layer in memory.layers if not layer.is_state]
    sizes = {layer.name: layer.spec.block_size for layer in attention}
    mine: dict[str, Any] = {"layers": sorted(layers), "attention_backend": backend}
    theirs: dict[str, Any] = {
        "layers": sorted(peer.descriptors),
        "attention_backend": metadata.attn_backend_name,
    }
    if metadata.attention_block_sizes:  # older releases do not tell
        mine["block_sizes"] = sizes
        theirs["block_sizes"] = metadata.attention_block_sizes
    if attention and not any(layer.head_layout for layer in attention):  # heads are shared out
        mine["block_len"] = max(layer.blocks.size for layer in attention)
        theirs["block_len"] = metadata.block_len
    if "conv_layout" in ours:  # MoRIIO starts with no other
        mine["conv_layout"], theirs["conv_layout"] = ours["conv_layout"], "DS"
    check_same(name, mine, theirs)
    if metadata.num_blocks < 1:
        raise PeerMismatch(f"{name} says that it has {metadata.num_blocks} blocks")


def _check_order(ours: list[str], name: str, theirs: list[str]) -> None:
    """Addresses come without the names of their layers, in the order of the descriptors."""
    for mine, other in zip_longest(ours, theirs):
        if mine != other:
            raise PeerMismatch(
                f"{name} has its layers in another order: {other} there where {mine} is here"
            )


def _describe(spec: KVCacheSpec) -> dict[str, str]:
    """A spec's fields as texts; numbers of ranks in it are compared as ``tp_size``."""
    assert is_dataclass(spec)
    described = {field.name: str(getattr(spec, field.name)) for field in fields(spec)}
    return {"type": type(spec).__name__, **described}


def _conv_layout() -> str:
    from vllm.model_executor.layers.mamba.mamba_utils import (  # noqa: PLC0415  # slow to import
        is_conv_state_dim_first,
    )

    return "DS" if is_conv_state_dim_first() else "SD"
