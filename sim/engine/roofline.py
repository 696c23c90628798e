"""How long a forward pass takes at least, from what an accelerator can compute and move.

A kernel takes as long as its arithmetic or its memory traffic, whichever is longer. The layers that
multiply tokens with weights are one kernel here, and the attention of each request one for each
layer; ranks exchange their sums in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec

from sim.engine.timing import StepTimes
from sim.engine.work import ModelWork, Span, tokens_of
from sim.errors import UsageError
from sim.hints import nearest
from sim.model.weights import Weights
from sim.units import US

Rate = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Efficiency = Annotated[float, msgspec.Meta(gt=0, le=1)]
_DIRECTORY = Path(__file__).parent / "accelerators"
_ACTIVATION_BYTES = 2
_SUMS_PER_LAYER = 2  # behind attention, and behind what follows it


class Accelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Peak rates, what part of them is reached, and what a pass costs besides.

    Args:
        flops_per_ns: of dense arithmetic.
        memory_bytes_per_ns: between memory and processors.
        link_bytes_per_ns: from one device to all others of its machine together.
        pass_us: launching a pass.
        weights: of the model, where its preset has none or others are wanted.
    """

    name: str
    flops_per_ns: Rate
    memory_bytes_per_ns: Rate
    link_bytes_per_ns: Rate
    compute_efficiency: Efficiency
    memory_efficiency: Efficiency
    link_efficiency: Efficiency
    pass_us: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    weights: Weights | None = None

    def kernel_ns(self, flops: float, bytes_moved: float) -> float:
        """The longer of arithmetic and memory traffic."""
        return max(
            flops / (self.flops_per_ns * self.compute_efficiency),
            bytes_moved / (self.memory_bytes_per_ns * self.memory_efficiency),
        )

    def link_ns(self, bytes_moved: float) -> float:
        return bytes_moved / (self.link_bytes_per_ns * self.link_efficiency)


@dataclass(frozen=True)
class RooflineTimes:
    """Durations of one engine step, as StepTimes has them; those of forward passes are computed."""

    steps: StepTimes
    accelerator: Accelerator
    weights: Weights
    work: ModelWork
    tp_size: int
    factor: float = 1.0

    def forward_ns(self, spans: Sequence[Span]) -> int:
        """Of a pass over ``spans``."""
        longest = self.linear_ns(spans) + self.attention_ns(spans) + self.exchange_ns(spans)
        return round((self.accelerator.pass_us * US + longest) * self.factor)

    def linear_ns(self, spans: Sequence[Span]) -> float:
        """Of everything that multiplies tokens with weights."""
        tokens = tokens_of(spans)
        flops = 2 * tokens * self.weights.active / self.tp_size
        read = self.weights.touched(tokens) * self.weights.bytes_per_parameter / self.tp_size
        return self.accelerator.kernel_ns(flops, read)

    def attention_ns(self, spans: Sequence[Span]) -> float:
        """Of attention and recurrences."""
        kernel_ns = self.accelerator.kernel_ns
        return sum(
            count * kernel_ns(layer.flops(span), layer.bytes_moved(span))
            for layer, count in self.work.layers
            for span in spans
        )

    def exchange_ns(self, spans: Sequence[Span]) -> float:
        """Of adding up what the ranks have, in a ring."""
        size = tokens_of(spans) * self.work.hidden_size * _ACTIVATION_BYTES
        ring = 2 * (self.tp_size - 1) / self.tp_size
        return self.accelerator.link_ns(_SUMS_PER_LAYER * self.work.num_layers * ring * size)

    def zero_ns(self, blocks: int) -> int:
        return self.steps.zero_ns(blocks)

    def draft_ns(self, passes: int) -> int:
        return self.steps.draft_ns(passes)

    @property
    def host_ns(self) -> int:
        return self.steps.host_ns

    def scaled(self, factor: float) -> RooflineTimes:
        """Everything takes ``factor`` as long."""
        return replace(self, steps=self.steps.scaled(factor), factor=self.factor * factor)


PassTimes = StepTimes | RooflineTimes


def accelerator_names() -> list[str]:
    """Those that have names, in order."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.toml"))


def named_accelerator(name: str) -> Accelerator:
    """The accelerator of that name; UsageError if there is none."""
    names = accelerator_names()
    if name not in names:
        raise UsageError(
            f"no accelerator {name!r}{nearest(name, names)}; there are: {', '.join(names)}, or "
            "give a file whose name ends in .toml"
        )
    return msgspec.toml.decode((_DIRECTORY / f"{name}.toml").read_bytes(), type=Accelerator)
