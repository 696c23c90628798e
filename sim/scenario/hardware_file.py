"""Hardware of somebody's own: the keys of what has a name, in a TOML file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import inspect

from sim.errors import UsageError
from sim.fabric import FabricProfile, named_fabric
from sim.scenario.schema import explain, place_of

SUFFIX = ".toml"
_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_PLACE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")
_EXPECTED = 'expected KEY = VALUE, such as call_ns = 500 or name = "mine"'


def find_fabric(name: str) -> FabricProfile:
    """The fabric in the file ``name``, if that ends in .toml, or the one that is named so."""
    return read_toml(Path(name), FabricProfile) if name.endswith(SUFFIX) else named_fabric(name)


def read_toml(path: Path, kind: type[_Kind]) -> _Kind:
    """What the file ``path`` says of hardware of this kind.

    Raises:
        UsageError: it cannot be read, or a key is missing, unknown or out of range.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 text ({error.reason}); expected TOML") from error
    except RecursionError as error:
        raise UsageError(f"{path}: is nested too deeply to be read; {_EXPECTED}") from error
    except ValueError as error:
        raise UsageError(_not_toml(path, text, str(error))) from error
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}{_place(text, place_of(str(error)))}: "
            f"{explain(inspect.type_info(kind), document, str(error))}"
        ) from error


def _not_toml(path: Path, text: str, problem: str) -> str:
    found = _PLACE.fullmatch(problem)
    if found is None:
        problem = problem.partition(";")[0]  # without Python's advice on long numbers
        return f"{path}: is not TOML: {problem}; {_EXPECTED}"
    line = text.splitlines()[int(found[2]) - 1]
    where = f"{path}:{found[2]}:{found[3]}"
    return f"{where}: is not TOML: {found[1]}, in {line.strip()!r:.80}; {_EXPECTED}"


def _place(text: str, keys: tuple[str | int, ...]) -> str:
    """``:LINE:COLUMN`` of the last of ``keys``, below the header of those before it."""
    *tables, key = [str(key) for key in keys] or [""]
    header: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if table := re.match(r"\s*\[([\w.-]+)\]", line):
            header = table[1].split(".")
        found = re.match(rf"\s*({re.escape(key)})\s*=", line) if key else None
        if found and header == tables:
            return f":{number}:{found.start(1) + 1}"
    return ""
