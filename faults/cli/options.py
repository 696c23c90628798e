"""From the command line's options to a scenario: a file or a shipped name, and what goes on top."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from faults.artifact import SCENARIO_FILE
from faults.directories import is_run, what_is
from faults.schedule import decode, with_faults
from faults.wording import replay_line
from sim.engine.connectors import get_connector
from sim.errors import UsageError
from sim.hints import nearest
from sim.model.presets import get_preset
from sim.router.options import Hold
from sim.scenario import (
    InlineWorkload,
    Scenario,
    TraceWorkload,
    find_fabric,
    load,
    with_settings,
)
from sim.scenario.workloads import MOST_REQUESTS
from sim.scenario.yaml_text import where_in_file

_SUFFIXES = (".yaml", ".yml")
SHIPPED = Path(__file__).parents[1] / "scenarios"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What ``faultlab run`` was given; None and empty mean that the scenario decides."""

    scenario: str | None = None
    model: str | None = None
    connector: str | None = None
    overlay: Path | None = None
    fabric: str | None = None
    trace: Path | None = None
    requests: int | None = None
    holds: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    seed: int | None = None
    check: str | None = None
    perturb: bool = False
    extra_config: str | None = None


def build_scenario(options: RunOptions) -> Scenario:
    """The scenario file with the options on top; ``--set`` comes last.

    Raises:
        UsageError: a file, name or value that does not exist or is not accepted.
    """
    scenario = Scenario() if options.scenario is None else find_scenario(options.scenario)
    scenario = _with_workload(scenario, options.trace, options.requests)
    scenario = _with_extra_config(scenario, options.extra_config)
    try:
        scenario = _with_holds(scenario, options.holds)
    except ValueError as error:
        raise UsageError(f"--hold {options.holds[-1]}: {error}") from error
    scenario = with_settings(
        with_settings(scenario, _named(options)), setting_pairs(options.settings)
    )
    return with_faults(scenario, options.faults)


def find_scenario(name: str) -> Scenario:
    """The scenario in the file ``name``, or the one that is shipped under that name."""
    path, shipped = Path(name), SHIPPED / f"{name}.yaml"
    if not path.exists() and path.name == name and shipped.is_file():
        return _load(shipped)
    if not path.exists():
        names = shipped_names()
        if path.name != name or path.suffix in _SUFFIXES:
            hint = nearest(path.stem, names)
            raise UsageError(f"{name}: no such file{hint}; faultlab init writes one")
        hint = nearest(name, names)
        listed = f"they are in {SHIPPED}" if hint else f"shipped are: {', '.join(names)}"
        raise UsageError(f"{name}: no such file, and no shipped scenario{hint}; {listed}")
    if path.is_dir():
        raise UsageError(f"{path}: {_instead_of_directory(path)}")
    if path.name != SCENARIO_FILE and path.suffix not in _SUFFIXES and is_run(path.parent):
        scenario = shlex.quote(str(path.parent / SCENARIO_FILE))
        raise UsageError(
            f"{path}: belongs to a recorded run; run it again with "
            f"{replay_line(path.parent)}, or its scenario alone with faultlab run {scenario}"
        )
    return _load(path)


def _load(path: Path) -> Scenario:
    """The scenario in a file, once its faults are known to be accepted as well."""
    scenario = load(path)
    decode(scenario.faults, source=str(path), where=where_in_file(path))
    return scenario


def _instead_of_directory(path: Path) -> str:
    """What to do with a directory where a scenario file is expected."""
    if is_run(path):
        return f"is a recorded run; run it again with {replay_line(path)}"
    return f"{what_is(path)}; expected a scenario file"


def shipped_names() -> list[str]:
    """The names of the scenarios that come with faultlab."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def _named(options: RunOptions) -> dict[str, str]:
    """The options that are settings by another name, as YAML."""
    if options.model is not None:
        get_preset(options.model)
    if options.connector is not None:
        get_connector(options.connector)
    if options.fabric is not None:
        find_fabric(options.fabric)
    overlay = None if options.overlay is None else str(options.overlay.resolve())
    values: dict[str, Any] = {
        "model": options.model,
        "connector": options.connector,
        "overlay": overlay,
        "fabric": options.fabric,
        "seed": options.seed,
        "check": options.check,
        "perturb": options.perturb or None,
    }
    return {key: json.dumps(value) for key, value in values.items() if value is not None}


def setting_pairs(settings: Iterable[str]) -> dict[str, str]:
    """The values of ``--set KEY=VALUE`` by key."""
    pairs = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting}: expected KEY=VALUE, such as tp_size=2")
        if key == "extra_config" and re.match(r"\w+=", value):
            raise UsageError(f"--set {setting}: expected --set extra_config.{value}")
        pairs[key] = value
    return pairs


def fabric_setting(fabric: str | None) -> dict[str, str]:
    """``--fabric`` as a setting: a name, or the numbers of a file, so that no run needs the file.

    Raises:
        UsageError: there is no such fabric, or its file is wrong.
    """
    if fabric is None:
        return {}
    profile = find_fabric(fabric)
    of_file = Path(fabric).suffix == ".toml"
    return {"fabric": json.dumps(msgspec.to_builtins(profile) if of_file else fabric)}


def _with_workload(scenario: Scenario, trace: Path | None, requests: int | None) -> Scenario:
    workload = scenario.workload
    if trace is not None:
        path = str(trace.resolve())
        workload = (
            msgspec.structs.replace(workload, path=path, requests=None)
            if isinstance(workload, TraceWorkload)
            else TraceWorkload(path)
        )
    if requests is not None:
        if not 1 <= requests <= MOST_REQUESTS:
            raise UsageError(f"--requests {requests}: expected at least 1, at most {MOST_REQUESTS}")
        if isinstance(workload, InlineWorkload):
            raise UsageError(
                f"--requests {requests}: the scenario writes its requests out one by one; edit "
                "the file, or give a --trace to take them from"
            )
        workload = msgspec.structs.replace(workload, requests=requests)
    return msgspec.structs.replace(scenario, workload=workload)


def _with_extra_config(scenario: Scenario, text: str | None) -> Scenario:
    if text is None:
        return scenario
    try:
        added = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"--extra-config {text}: is not JSON: {error}; {_as_json(text)}"
        ) from error
    if not isinstance(added, dict):
        raise UsageError(f"--extra-config {text}: {_as_json(text)}")
    return msgspec.structs.replace(scenario, extra_config={**scenario.extra_config, **added})


def _as_json(text: str) -> str:
    """How to write ``text``, which is no JSON object; what it sets is kept, if that is clear."""
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        key, value = "transfer_timeout", "5"
    try:
        document = json.dumps({key: json.loads(value)})
    except json.JSONDecodeError:
        document = json.dumps({key: value})
    return (
        f"expected a JSON object, as in --extra-config {shlex.quote(document)}, or a setting by "
        f"itself: --set {shlex.quote(f'extra_config.{key}={value}')}"
    )


def _with_holds(scenario: Scenario, texts: Iterable[str]) -> Scenario:
    """A request that the scenario holds already is held for the time given here."""
    holds = {hold.request: hold for hold in scenario.router.holds}
    for text in texts:
        request, equals, seconds = text.rpartition("=")
        try:
            if not equals or not request:
                raise ValueError
            holds[request] = msgspec.convert({"request": request, "seconds": float(seconds)}, Hold)
        except ValueError:
            raise UsageError(
                f"--hold {text}: expected REQUEST=SECONDS, such as req-3=65, with 0 seconds or more"
            ) from None
    router = msgspec.structs.replace(scenario.router, holds=tuple(holds.values()))
    return msgspec.structs.replace(scenario, router=router)
