"""What a forward pass computes and moves on one rank, by the true sizes of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sim.model.presets import ModelPreset, get_preset

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheSpec

Span = tuple[int, int]
"""Tokens of a request that a pass computes: from the first up to and without the last."""
_STATE_FLOPS = 6
"""For each element of a recurrent state and token: decay, take away and add, multiply out."""
_STATE_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class LayerWork:
    """One layer that has a cache.

    Args:
        bytes_per_token: of context, in its cache.
        flops_per_pair: for each computed token and each token of context that it attends to.
        most_tokens: of context that it attends to, at most.
        state_bytes: of a recurrent layer's state, which takes the place of all context.
    """

    bytes_per_token: float = 0.0
    flops_per_pair: float = 0.0
    most_tokens: int | None = None
    state_bytes: int = 0

    def flops(self, span: Span) -> float:
        """Of attention, or of the recurrence."""
        begin, end = span
        state = (end - begin) * _STATE_FLOPS * self.state_bytes / _STATE_ELEMENT_BYTES
        return self.flops_per_pair * _pairs(begin, end, self.most_tokens) + state

    def bytes_moved(self, span: Span) -> float:
        """Read from the cache, and written to it."""
        begin, end = span
        computed = end - begin
        context = end if self.most_tokens is None else min(end, self.most_tokens + computed - 1)
        return (context + computed) * self.bytes_per_token + 2 * self.state_bytes


@dataclass(frozen=True)
class ModelWork:
    """A rank's share of a model: what the tokens of a pass are multiplied with comes on top."""

    hidden_size: int
    num_layers: int
    layers: tuple[tuple[LayerWork, int], ...]
    """Layers with a cache, and how many there are alike."""


@cache
def work_of(model: str, tp_size: int) -> ModelWork:
    """Of one of ``tp_size`` ranks of the preset called so, whatever geometry is simulated."""
    preset = get_preset(model)
    config = preset.sizes("real").hf_config
    specs = preset.layer_specs(tp_size, "real")
    layers = Counter(_layer_work(preset, name, spec, tp_size) for name, spec in specs.items())
    return ModelWork(config["hidden_size"], config["num_hidden_layers"], tuple(layers.items()))


def _layer_work(preset: ModelPreset, name: str, spec: KVCacheSpec, tp_size: int) -> LayerWork:
    from vllm.v1.kv_cache_interface import MambaSpec  # noqa: PLC0415  # loads vLLM

    if isinstance(spec, MambaSpec):
        pieces = preset.state_pieces(tp_size, 0, "real")
        return LayerWork(state_bytes=sum(piece.size for piece in pieces))
    if not spec.prefix_cacheable:  # a ring for a few tokens
        return LayerWork()
    sizes = preset.sizes("real")
    config = sizes.hf_config
    bytes_per_token = spec.page_size_bytes / spec.block_size
    if sizes.indexer is not None and ".indexer." in name:
        # Not split over ranks. All tokens are compared with all entries.
        flops = 2 * config["index_n_heads"] * sizes.indexer.head_size
        return LayerWork(bytes_per_token, flops / sizes.indexer.tokens_per_entry)
    window = getattr(spec, "sliding_window", None) or config.get("index_topk")
    return LayerWork(bytes_per_token, _flops_per_pair(config) / tp_size, window)


def _flops_per_pair(config: Any) -> int:
    """Of all heads: a multiplication and an addition for each number of a key and of a value."""
    heads: int = config["num_attention_heads"]
    if "kv_lora_rank" in config:
        key = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
        return int(2 * heads * (key + config["v_head_dim"]))
    return int(4 * heads * config["head_dim"])


def _pairs(begin: int, end: int, most: int | None) -> int:
    """How many tokens of context all of the tokens [begin, end) attend to, themselves included."""
    bend = end if most is None else min(max(begin, most), end)
    growing = (bend * (bend + 1) - begin * (begin + 1)) // 2
    return growing + (end - bend) * (most or 0)


def tokens_of(spans: Sequence[Span]) -> int:
    """Tokens that a pass computes."""
    return sum(end - begin for begin, end in spans)
