"""Producers and consumers that were not configured alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import msgspec

from faults.fault import Count, Fault, parameters
from faults.scene import Scene
from sim.errors import UsageError
from sim.model.presets import CacheDtype, Dtype, Geometry, get_preset
from sim.scenario.capacity import most_blocks

if TYPE_CHECKING:
    from sim.engine.engine import Engine
    from sim.scenario import Scenario

_LIGHT_MODELS = ("llama", "deepseek-mla", "gemma-swa")


class Disagreement(Fault, frozen=True, tag="disagreement"):
    """One engine is configured unlike the others: model, blocks, dtype, TP size or setting.

    Another ``model`` has other layers, groups and page sizes, another ``geometry`` other page
    sizes, another ``block_size`` (tokens) the same content in other blocks, another ``dtype`` or
    ``cache_dtype`` of equal size other numbers in the same bytes. ``extra_config`` is
    added to the settings of its connector. From the start, for good.
    """

    model: str | None = None
    geometry: Geometry | None = None
    block_size: Count | None = None
    dtype: Dtype | None = None
    cache_dtype: CacheDtype | None = None
    tp_size: Count | None = None
    extra_config: dict[str, Any] = msgspec.field(default_factory=dict)

    before_start: ClassVar[bool] = True
    sets_apart: ClassVar[bool] = True

    @classmethod
    def variants(cls, scenario: Scenario) -> list[dict[str, Any]]:
        """The other values of each field, and the other light models that can draft as it does."""
        return list(_unlike(scenario))

    def strike(self, scene: Scene) -> None:
        choices = parameters(type(self))
        if not any(getattr(self, name) for name in choices):
            raise UsageError(
                f"{self.kind()}: it says nothing to disagree about; give one or more of "
                f"{', '.join(choices)}, such as {self.kind()}:node=d0,block_size=32"
            )
        engine = scene.any_engine()
        if self.model is not None:
            engine.preset = get_preset(self.model)
        if self.geometry is not None:
            engine.geometry = self.geometry
        if self.block_size is not None:
            engine.preset = replace(engine.preset, block_size=self.block_size)
        if self.dtype is not None:
            engine.preset = replace(engine.preset, dtype=self.dtype)
        if self.cache_dtype is not None:
            engine.preset = replace(engine.preset, cache_dtype=self.cache_dtype)
        if self.tp_size is not None:
            executor = "multi-process" if self.tp_size > 1 else engine.options.executor
            engine.options = msgspec.structs.replace(
                engine.options, tp_size=self.tp_size, executor=executor
            )
        if self.extra_config and engine.connector is not None:
            engine.connector = engine.connector.with_settings(self.extra_config)
        engine.num_blocks = min(engine.num_blocks, _most_blocks(engine))
        scene.hit([], node=engine.name)


def _most_blocks(engine: Engine) -> int:
    """Larger blocks may not find room; rings and padding, which are not counted, get half of it."""
    options, preset, geometry = engine.options, engine.preset, engine.geometry
    method = options.speculation.method if options.speculation else None
    size = preset.tokens_per_block(options.tp_size, geometry, options.num_speculative_tokens)
    of_token = preset.bytes_per_token(options.tp_size, geometry, method)
    return most_blocks(size, of_token, preset.num_groups) // 2


def _unlike(scenario: Scenario) -> Iterator[dict[str, Any]]:
    preset = get_preset(scenario.model)
    method = scenario.speculation and scenario.speculation.method
    for name in _LIGHT_MODELS:
        if name != scenario.model and (method is None or method in get_preset(name).drafters):
            yield {"model": name}
    for field, accepted, own in (
        ("geometry", Geometry, scenario.geometry),
        ("dtype", Dtype, preset.dtype),
        ("cache_dtype", CacheDtype, preset.cache_dtype),
    ):
        yield from ({field: value} for value in get_args(accepted) if value != own)
    yield {"block_size": 2 * preset.block_size}
    yield {"tp_size": 1 if scenario.engine.tp_size > 1 else 2}
    yield {"extra_config": {"load_mode": "sync"}}
