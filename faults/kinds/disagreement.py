"""Producers and consumers that were not configured alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from faults.fault import CannotStrike, Count, Fault, parameters
from faults.scene import Scene
from sim.model.presets import CacheDtype, Dtype, Geometry, get_preset


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

    def strike(self, scene: Scene) -> None:
        if not any(getattr(self, name) for name in parameters(type(self))):
            raise CannotStrike("it says nothing to disagree about")
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
        scene.hit([], node=engine.name)
