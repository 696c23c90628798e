"""The fabrics that have names: a data file of ``fabrics/`` each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sim.errors import UsageError
from sim.fabric.profile import FabricProfile
from sim.hints import nearest

_DIRECTORY = Path(__file__).parent / "fabrics"


def fabric_names() -> list[str]:
    """All of them, in order."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.toml"))


def named_fabric(name: str) -> FabricProfile:
    """The fabric of that name.

    Raises:
        UsageError: there is none.
    """
    names = fabric_names()
    if name not in names:
        raise UsageError(
            f"no fabric {name!r}{nearest(name, names)}; there are: {', '.join(names)}, or give a "
            "file whose name ends in .toml"
        )
    text = (_DIRECTORY / f"{name}.toml").read_bytes()
    return msgspec.toml.decode(text, type=FabricProfile)


CX7: Final = named_fabric("cx7")
"""NVIDIA ConnectX-7, 400 Gb/s: what runs have that ask for nothing else."""
