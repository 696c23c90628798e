"""Scenario files: strict YAML in, readable YAML out, and single settings on top.

Everything that is not understood is a UsageError that names the file, the key and what is
accepted. Relative paths in a file are relative to the file, those in settings and in text to the
current directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
from msgspec import inspect

from sim.engine.connectors import get_connector
from sim.engine.options import pass_times_of
from sim.engine.roofline import Accelerator
from sim.errors import UsageError
from sim.fabric import FabricProfile
from sim.hints import nearest
from sim.model.presets import get_preset
from sim.scenario.hardware_file import SUFFIX, read_toml
from sim.scenario.schema import dotted_keys, explain, place_of
from sim.scenario.types import Scenario
from sim.scenario.yaml_text import (
    Where,
    parse_yaml,
    print_yaml,
    read_yaml,
    where_in,
    where_in_file,
)

_ROOT = inspect.type_info(Scenario)
_FREE_FORM = "extra_config."


def load(path: str | Path) -> Scenario:
    """The scenario in the file ``path``, with its relative paths made absolute."""
    path = Path(path)
    document = read_yaml(path)
    _anchor(document, path.resolve().parent)
    return _decode(document, where_in_file(path))


def loads(text: str, *, source: str = "scenario") -> Scenario:
    """The scenario in ``text``; ``source`` is what errors call it."""
    return _decode(parse_yaml(text, source=source), where_in(text, source))


def dumps(scenario: Scenario) -> str:
    """YAML with every key, defaults included, in a fixed order; ``loads`` gives it back."""
    return print_yaml(msgspec.to_builtins(scenario))


def with_settings(scenario: Scenario, settings: Mapping[str, str]) -> Scenario:
    """``scenario`` with some values replaced.

    Keys are dotted paths (``engine.tp_size``, ``extra_config.transfer_timeout``) or, where only
    one key is called so, the last part alone (``tp_size``). Values are YAML. Settings apply in
    order, and what they add up to is checked.
    """
    document = msgspec.to_builtins(scenario)
    for key, text in settings.items():
        value = parse_yaml(text, source=f"--set {key}")
        _assign(document, _full_key(key, document), value)
    return _decode(document, lambda keys: "--set")


def _decode(document: Any, where: Where) -> Scenario:
    if document is None:
        raise UsageError(f"{where(())}: is empty; expected a scenario, as faultlab init writes one")
    _read_hardware(document, where)
    try:
        scenario = msgspec.convert(document, Scenario)
    except msgspec.ValidationError as error:
        message = explain(_ROOT, document, str(error))
        raise UsageError(f"{where(place_of(str(error)))}: {message}") from error
    _check_name(where, "model", lambda: get_preset(scenario.model).sizes(scenario.geometry))
    _check_name(where, "fabric", lambda: scenario.fabric_profile)
    _check_name(where, "connector", lambda: get_connector(scenario.connector))
    preset, engine = get_preset(scenario.model), scenario.engine
    _check_name(where, "engine.accelerator", lambda: pass_times_of(engine, preset))
    key = "topology.producer_connector"
    _check_name(where, key, lambda: get_connector(scenario.producer_connector))
    return scenario


def _read_hardware(document: Any, where: Where) -> None:
    """Put numbers where a document names a file with them, so that a run is all in one."""
    if not isinstance(document, dict):
        return
    for owner, key, full_key, kind in (
        (document, "fabric", "fabric", FabricProfile),
        (document.get("engine"), "accelerator", "engine.accelerator", Accelerator),
    ):
        if isinstance(owner, dict) and _is_file(name := owner.get(key)):
            try:
                owner[key] = msgspec.to_builtins(read_toml(Path(name), kind))
            except UsageError as error:
                raise UsageError(_about(where, full_key, error)) from error


def _about(where: Where, key: str, error: UsageError) -> str:
    return f"{where(tuple(key.split('.')))}: {key}: {error}"


def _check_name(where: Where, key: str, look_up: Callable[[], object]) -> None:
    try:
        look_up()
    except UsageError as error:
        raise UsageError(_about(where, key, error)) from error


def _full_key(key: str, document: Any) -> str:
    keys = list(dotted_keys(_ROOT, document))
    if key in keys or key.startswith(_FREE_FORM):
        return key
    called_so = [full for full in keys if full.endswith(f".{key}")]
    if len(called_so) == 1:
        return called_so[0]
    if called_so:
        raise UsageError(f"--set {key}: could be any of {', '.join(called_so)}; write it in full")
    hint = nearest(key, [*keys, *(full.rpartition(".")[2] for full in keys)])
    if hint:
        raise UsageError(f"--set {key}: unknown key{hint}; faultlab schema has them all")
    raise UsageError(f"--set {key}: unknown key; accepted: {', '.join(keys)}, {_FREE_FORM}NAME")


def _assign(document: Any, key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        if document.get(parent) is None:
            document[parent] = {}
        document = document[parent]
        if not isinstance(document, dict):
            raise UsageError(f"--set {key}: {parent} is {document!r}, which has no keys")
    document[last] = value


def _anchor(document: Any, directory: Path) -> None:
    """Make the relative paths of a document that was read from ``directory`` absolute."""
    if not isinstance(document, dict):
        return
    for owner, key in ((document, "overlay"), (document.get("workload"), "path")):
        if isinstance(owner, dict) and isinstance(owner.get(key), str):
            owner[key] = str(directory / owner[key])
    for owner, key in ((document, "fabric"), (document.get("engine"), "accelerator")):
        if isinstance(owner, dict) and _is_file(name := owner.get(key)):
            owner[key] = str(directory / name)


def _is_file(name: object) -> TypeGuard[str]:
    """Whether it is no name of hardware, but the path of a file that describes it."""
    return isinstance(name, str) and name.endswith(SUFFIX)
