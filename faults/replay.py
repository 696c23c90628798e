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
    REPRODUCED_WITH_NEW = "reproduced; also broke rules that the recording did not know"
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
    with the recorded events, if anything is; ``new_rules`` are those of REPRODUCED_WITH_NEW.
    """

    status: ReplayStatus
    differences: list[str] = field(default_factory=list)
    first_divergence: str | None = None
    damage: str | None = None
    new_rules: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        """The status, with the rules it is about."""
        if not self.new_rules:
            return self.status.value
        new = ", ".join(self.new_rules)
        return f"reproduced; also broke {new}, which the recording did not know"


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
    new_rules = []
    if status is ReplayStatus.REPRODUCED_WITH_NEW:
        new_rules = _on_top(artifact, result)
    if result.outcome.event_hash == artifact.event_hash:
        first = None
    elif recorded is None:
        first = f"cannot be told: {damage}"
    else:
        first = first_divergence(recorded, result.log.records)
    return Comparison(status, changed, first, damage, new_rules)


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
    broken, on_top = outcome.signature(), _on_top(artifact, result)
    if broken == artifact.signature:
        return ReplayStatus.FAILS_DIFFERENTLY
    all_again = len(broken) == len(artifact.signature) + len(on_top)
    if all_again and all(rule in artifact.rules_since() for rule in on_top):
        return ReplayStatus.REPRODUCED_WITH_NEW
    return ReplayStatus.FAILS_OTHERWISE


def _on_top(artifact: Artifact, result: RunResult) -> list[str]:
    """The rules that are broken here and were not when it was recorded."""
    return [rule for rule in result.outcome.signature() if rule not in artifact.signature]


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
