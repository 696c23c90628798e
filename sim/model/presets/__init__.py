"""The models one can name. A module in this package that defines ``PRESET`` adds one."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from sim.errors import UsageError
from sim.extensions import by_name, load
from sim.hints import nearest
from sim.model.presets.base import (
    GEOMETRIES,
    CacheDtype,
    Dimensions,
    Drafter,
    Dtype,
    Geometry,
    ModelPreset,
)

__all__ = [
    "GEOMETRIES",
    "PRESETS",
    "CacheDtype",
    "Dimensions",
    "Drafter",
    "Dtype",
    "Geometry",
    "ModelPreset",
    "get_preset",
]


_SHARED = {"base", "glm", "hybrid"}  # what presets are made of


def _collect() -> Mapping[str, ModelPreset]:
    names = sorted({module.name for module in pkgutil.iter_modules(__path__)} - _SHARED)
    modules = [load(f"{__name__}.{name}") for name in names]
    found = by_name(
        "model presets", modules, lambda m: _preset_in(m).name, lambda m: str(m.__file__)
    )
    return MappingProxyType({name: _preset_in(module) for name, module in found.items()})


def _preset_in(module: ModuleType) -> ModelPreset:
    preset = getattr(module, "PRESET", None)
    if not isinstance(preset, ModelPreset):
        raise UsageError(f"{module.__file__}: defines no PRESET, the ModelPreset that it is to add")
    return preset


PRESETS: Mapping[str, ModelPreset] = _collect()


def get_preset(name: str) -> ModelPreset:
    """The preset called `name`; UsageError that lists the names if there is none."""
    if name not in PRESETS:
        raise UsageError(
            f"unknown model {name!r}{nearest(name, PRESETS)}; use one of: {', '.join(PRESETS)}"
        )
    return PRESETS[name]
