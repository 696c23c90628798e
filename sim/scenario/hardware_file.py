"""Hardware of somebody's own: the keys of what has a name, in a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import inspect

from sim.errors import UsageError
from sim.fabric import FabricProfile, named_fabric
from sim.scenario.schema import explain

SUFFIX = ".toml"
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


def find_fabric(name: str) -> FabricProfile:
    """The fabric in the file ``name``, if that ends in .toml, or the one that is named so."""
    return read_toml(Path(name), FabricProfile) if name.endswith(SUFFIX) else named_fabric(name)


def read_toml(path: Path, kind: type[_Kind]) -> _Kind:
    """What the file ``path`` says of hardware of this kind.

    Raises:
        UsageError: it cannot be read, or a key is missing, unknown or out of range.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise UsageError(f"{path}: is not TOML: {error}") from error
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {explain(inspect.type_info(kind), document, str(error))}"
        ) from error
