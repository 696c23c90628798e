"""The models one can name. A module in this package that defines ``PRESET`` adds one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from sim.errors import UsageError
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
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    presets: list[ModelPreset] = [module.PRESET for module in modules]
    return MappingProxyType({preset.name: preset for preset in presets})


PRESETS: Mapping[str, ModelPreset] = _collect()


def get_preset(name: str) -> ModelPreset:
    """The preset called `name`; UsageError that lists the names if there is none."""
    if name not in PRESETS:
        raise UsageError(
            f"unknown model {name!r}{nearest(name, PRESETS)}; use one of: {', '.join(PRESETS)}"
        )
    return PRESETS[name]
