"""Runs an artifact again and judges how the new run compares with the recorded one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from faults.artifact import Artifact, read_events
from faults.identity import differences
from sim.errors import UsageError
from sim.kernel.log import Record
from sim.outcome import RunResult

_GONE = {"kind": "nothing more"}


class ReplayStatus(StrEnum):
    """How a replay went."""

    REPRODUCED = "reproduced"
    SAME_PASS = "same run, passes"
    PASSES_NOW = "passes now"
    PASSES_DIFFERENTLY = "passes, but not in the same way"
    FAILS_NOW = "fails now"
    FAILS_DIFFERENTLY = "fails differently, in the same kind of way"
    FAILS_OTHERWISE = "fails in another way"
    INCOMPLETE = "was cut short before all requests were sent"
    NOT_REPRODUCED = "did not reproduce on the same versions"


@dataclass(frozen=True)
class Comparison:
    """A status, and why.

    ``differences`` are sentences about the software then and now, which may differ and not matter;
    ``first_divergence`` tells where the histories part, if they do; ``damage`` says what is wrong
    with the recorded events, if anything is.
    """

    status: ReplayStatus
    differences: list[str] = field(default_factory=list)
    first_divergence: str | None = None
    damage: str | None = None


def compare(artifact: Artifact, result: RunResult, directory: Path) -> Comparison:
    """``result`` is a new run of the artifact's scenario; ``directory`` holds the old events."""
    changed = differences(artifact.versions)
    if result.guest_digest != artifact.guest_digest:
        changed.append(
            f"sources under test: recorded with {artifact.guest_digest}, here {result.guest_digest}"
        )
    try:
        recorded, damage = read_events(directory, artifact), None
    except UsageError as error:
        recorded, damage = None, str(error)
    status = _status(artifact, result, versions_differ=bool(changed))
    if result.outcome.event_hash == artifact.event_hash:
        return Comparison(status, changed, None, damage)
    if recorded is None:
        return Comparison(status, changed, f"cannot be told: {damage}", damage)
    return Comparison(status, changed, first_divergence(recorded, result.log.records), damage)


def _status(artifact: Artifact, result: RunResult, *, versions_differ: bool) -> ReplayStatus:
    outcome = result.outcome
    same_history = outcome.event_hash == artifact.event_hash
    if not same_history and not versions_differ:
        return ReplayStatus.NOT_REPRODUCED
    if outcome.verdict == "incomplete":
        return ReplayStatus.INCOMPLETE
    if same_history:
        return ReplayStatus.SAME_PASS if outcome.passed else ReplayStatus.REPRODUCED
    if outcome.passed:
        failed_then = artifact.verdict == "violation"
        return ReplayStatus.PASSES_NOW if failed_then else ReplayStatus.PASSES_DIFFERENTLY
    if artifact.verdict == "pass":
        return ReplayStatus.FAILS_NOW
    same_kind = outcome.signature() == artifact.signature
    return ReplayStatus.FAILS_DIFFERENTLY if same_kind else ReplayStatus.FAILS_OTHERWISE


def first_divergence(recorded: Sequence[dict[str, Any]], records: Sequence[Record]) -> str:
    """Where two histories part, in words."""
    now = (msgspec.to_builtins(record.as_dict()) for record in records)
    for number, (then, here) in enumerate(zip_longest(recorded, now, fillvalue=_GONE), start=1):
        if then != here:
            return f"event {number}: recorded {in_words(then)}; here {in_words(here)}"
    return "all records are equal; what differs is the order in which tasks ran"


def in_words(event: dict[str, Any]) -> str:
    """A record as ``events.jsonl`` has it, in one line."""
    details = {k: v for k, v in event.items() if k not in ("t_ns", "actor", "kind")}
    when = f" at {event['t_ns'] / 1e9:.9f} s in {event['actor']}" if "t_ns" in event else ""
    text = f"{event['kind']}{when}"
    return f"{text} {msgspec.json.encode(details).decode()[:200]}" if details else text
