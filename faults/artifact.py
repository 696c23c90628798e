"""The directory of a run: enough to run it again and to see whether it went the same way.

``scenario.yaml`` is the whole scenario, ``events.jsonl`` the event log, and ``artifact.json``
says what came of it and on which software. Nothing is overwritten unless asked for, and a
directory that was edited is told from one that is as it was written, file by file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from faults.directories import ARTIFACT_FILE, is_run, smaller_place, what_is
from faults.identity import versions
from sim.errors import UsageError
from sim.kernel.log import Record
from sim.oracles import ORACLES, Violation
from sim.outcome import RunResult, Verdict
from sim.scenario import Scenario, TraceWorkload, dumps, load
from sim.scenario.yaml_text import read_yaml

SCHEMA_VERSION: Final = 2
SCENARIO_FILE: Final = "scenario.yaml"
EVENTS_FILE: Final = "events.jsonl"
REPORT_FILE: Final = "report.html"
"""Drawn from the others, and no part of what a replay compares."""

_CUT_SHORT: Final = "truncated"
"""What msgspec says of a document that ends too soon."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``artifact.json`` holds."""

    schema_version: Literal[2] = SCHEMA_VERSION
    verdict: Verdict
    signature: list[str]
    violations: list[Violation]
    event_hash: str
    events_digest: str
    """Hash of the file with the event log."""
    scenario_digest: str
    guest_digest: str
    """Hash of the sources that ran as guests: connector, and vLLM's side of it."""
    versions: dict[str, str]
    command_line: list[str]
    injected: list[str]
    """Python code that took part in the run, which no replay can bring back."""
    trace_digest: str | msgspec.UnsetType = msgspec.UNSET
    """Hash of the trace that the scenario names, if it names one; older artifacts have none."""
    rules: list[str] | msgspec.UnsetType = msgspec.UNSET
    """The rules that the run was judged by; older artifacts do not say."""
    seal: str = ""
    """Hash of everything else in this file, so that an edit is not taken for a fact."""

    def sealed(self) -> Artifact:
        """The artifact with the seal that belongs to its content."""
        plain = msgspec.structs.replace(self, seal="")
        digest = hashlib.blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=16)
        return msgspec.structs.replace(self, seal=digest.hexdigest())

    def rules_since(self) -> list[str]:
        """The rules of today that the run was not judged by, as far as the artifact knows."""
        if isinstance(self.rules, msgspec.UnsetType):
            return []
        return [name for name in ORACLES if name not in self.rules]


def make_artifact(
    scenario: Scenario, result: RunResult, command_line: Sequence[str], events_digest: str
) -> Artifact:
    """The artifact of a run of ``scenario`` on the software that is running now."""
    outcome = result.outcome
    return Artifact(
        verdict=outcome.verdict,
        signature=outcome.signature(),
        violations=outcome.violations,
        event_hash=outcome.event_hash,
        events_digest=events_digest,
        scenario_digest=scenario.digest(),
        guest_digest=result.guest_digest,
        versions=versions(),
        command_line=list(command_line),
        injected=list(result.injected),
        trace_digest=_trace_digest(scenario),
        rules=list(ORACLES),
    ).sealed()


def default_directory(scenario: Scenario, event_hash: str, parent: Path) -> Path:
    """A directory below ``parent`` that does not exist yet, named after the run."""
    connector = re.sub(r"[^\w.-]+", "-", scenario.connector)
    name = f"{scenario.model}-{connector}-seed{scenario.seed}-{event_hash[:8]}"
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def check_vacant(directory: Path, *, force: bool) -> None:
    """UsageError when ``directory`` has content that writing an artifact could overwrite, or
    cannot be written to."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory}: is a file; --out takes a directory, new or empty")
    if not force and directory.is_dir() and any(directory.iterdir()):
        raise UsageError(
            f"{directory}: is not empty; name another directory, or add --force to overwrite the "
            "artifact in it"
        )
    above = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise UsageError(
            f"{directory}: the artifact cannot be written: {above} is no directory that can be "
            "written to; name another with --out"
        )


def write(
    directory: Path,
    scenario: Scenario,
    result: RunResult,
    *,
    command_line: Sequence[str],
    force: bool = False,
) -> None:
    """Write the artifact of a run; the last file written is the one that makes it valid.

    Raises:
        UsageError: the directory is in use and ``force`` is not set, or cannot be written.
    """
    check_vacant(directory, force=force)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ARTIFACT_FILE).unlink(missing_ok=True)
        (directory / SCENARIO_FILE).write_text(dumps(scenario), encoding="utf-8")
        with (directory / EVENTS_FILE).open("wb") as file:
            result.log.write_jsonl(file)
        made = make_artifact(scenario, result, command_line, _digest(directory / EVENTS_FILE))
        document = msgspec.json.encode(made)
        (directory / ARTIFACT_FILE).write_bytes(msgspec.json.format(document, indent=2) + b"\n")
    except OSError as error:
        raise UsageError(
            f"{directory}: the artifact cannot be written: {error.strerror}; name a directory "
            "that can with --out"
        ) from error


def find(path: Path) -> Path:
    """The artifact's directory, given itself or one of its files; UsageError if it is none."""
    directory = path.parent if path.is_file() else path
    if not is_run(directory):
        beside = f" with no {ARTIFACT_FILE} beside it" if path.is_file() else ""
        raise UsageError(
            f"{path}: {what_is(path)}{beside}; expected the directory of a run (for a scenario "
            "alone, use faultlab run)"
        )
    return directory


def read(directory: Path) -> tuple[Scenario, Artifact]:
    """What the artifact in ``directory`` says, once it is known to be as it was written.

    Raises:
        UsageError: a file is missing, unreadable, or was edited.
    """
    artifact = read_outcome(directory)
    scenario = load(directory / SCENARIO_FILE)
    if not is_of(artifact, scenario, directory):
        raise UsageError(
            f"{directory / SCENARIO_FILE}: is not the scenario of this artifact (digest "
            f"{scenario.digest()}, recorded {artifact.scenario_digest}); run it by itself with "
            f"faultlab run {shlex.quote(str(directory / SCENARIO_FILE))}"
        )
    return scenario, artifact


def read_smaller(directory: Path, artifact: Artifact) -> Scenario | None:
    """What ``faultlab shrink`` has written beside the run in ``directory``; None if there is
    nothing that can be read and breaks the same rules."""
    try:
        scenario, smaller = read(smaller_place(directory))
    except UsageError:
        return None
    return scenario if smaller.signature == artifact.signature else None


def is_of(artifact: Artifact, scenario: Scenario, directory: Path) -> bool:
    """Whether ``scenario``, which is in ``directory``, is the recorded one.

    An earlier faultlab, with fewer keys, may have written it.
    """
    if scenario.digest() == artifact.scenario_digest:
        return True
    return scenario.digest(read_yaml(directory / SCENARIO_FILE)) == artifact.scenario_digest


def require_trace(scenario: Scenario, artifact: Artifact) -> None:
    """UsageError when the scenario's trace is another one than it was in the recorded run.

    One that cannot be read is for whoever loads it to refuse.
    """
    recorded, here = artifact.trace_digest, _trace_digest(scenario)
    if msgspec.UNSET not in (recorded, here) and here != recorded:
        assert isinstance(scenario.workload, TraceWorkload)
        raise UsageError(
            f"the trace {scenario.workload.path} was edited or replaced after the run (digest "
            f"{here}, recorded {recorded}); put the old one back, or make a new run of it with "
            "faultlab run"
        )


def read_outcome(directory: Path) -> Artifact:
    """What came of the run, whatever has become of its scenario since; UsageError as ``read``."""
    artifact = _decode(directory / ARTIFACT_FILE)
    if artifact.sealed().seal != artifact.seal:
        raise UsageError(
            f"{directory / ARTIFACT_FILE}: was edited after it was written (its seal does not "
            "fit); make a new one with faultlab run --out"
        )
    return artifact


def read_events(directory: Path, artifact: Artifact) -> list[dict[str, Any]]:
    """The recorded events.

    Raises:
        UsageError: the file is gone, cannot be read, or was edited.
    """
    path = directory / EVENTS_FILE
    try:
        if _digest(path) != artifact.events_digest:
            raise UsageError(f"{EVENTS_FILE} was edited after it was written (another digest)")
        return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    except OSError as error:
        raise UsageError(f"{EVENTS_FILE} cannot be read: {error.strerror}") from error


def read_records(directory: Path, artifact: Artifact) -> list[Record]:
    """The recorded events as the run itself had them; UsageError as ``read_events``."""
    return [
        Record(event.pop("t_ns"), event.pop("actor"), event.pop("kind"), event)
        for event in read_events(directory, artifact)
    ]


def _trace_digest(scenario: Scenario) -> str | msgspec.UnsetType:
    if not isinstance(scenario.workload, TraceWorkload):
        return msgspec.UNSET
    try:
        return _digest(Path(scenario.workload.path))
    except OSError:
        return msgspec.UNSET


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _decode(path: Path) -> Artifact:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Artifact)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _CUT_SHORT in str(error):
            scenario = shlex.quote(str(path.with_name(SCENARIO_FILE)))
            raise UsageError(
                f"{path}: is cut short; copy the whole directory again, or make the run again with "
                f"faultlab run {scenario}"
            ) from error
        raise UsageError(
            f"{path}: is not an artifact of schema version {SCHEMA_VERSION}: {error}"
        ) from error
