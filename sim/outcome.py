"""The result of one run, as the command line's JSON shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from sim.acceptance import Acceptance
from sim.kernel.log import EventLog
from sim.oracles import Violation
from sim.transferred import Transferred
from sim.workload.summary import WorkloadSummary

SCHEMA_VERSION = 1


Verdict = Literal["pass", "violation", "incomplete"]
"""``incomplete``: no rule was broken, but the run ended before all of its requests were sent."""


def verdict_of(violations: Sequence[Violation], never_sent: int) -> Verdict:
    """What a run comes to; a violation counts however early the run ended."""
    if violations:
        return "violation"
    return "incomplete" if never_sent else "pass"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds; ``guest_s`` is wall time inside simulated processes, vLLM included."""

    schema_version: int = SCHEMA_VERSION
    verdict: Verdict
    violations: list[Violation]
    requests: dict[str, int]
    """Counts by outcome; ``unfinished`` never got an answer, ``never-sent`` did not arrive before
    ``max_virtual_s``."""
    workload: WorkloadSummary
    virtual_s: float
    wall_s: float
    guest_s: float
    engine_steps: int
    transfers: dict[str, Transferred] = {}
    """By request, without those of which nothing landed."""
    events: int
    event_hash: str
    seed: int
    scenario: dict[str, Any]
    speculation: Acceptance | None = None
    """Of drafts; null without speculation."""
    notes: dict[str, int]
    """What oracles counted and did not find wrong."""
    settings_asked_for: list[str] = []
    """Keys of ``extra_config`` that connectors looked for."""
    settings_not_asked_for: list[str] = []
    """Those that the scenario gives, and no connector looked for."""

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    def signature(self) -> list[str]:
        """What failed, without times and ids: equal signatures are the same kind of failure."""
        return sorted({violation.oracle for violation in self.violations})


@dataclass(frozen=True)
class RunResult:
    """An outcome with the full record behind it."""

    outcome: Outcome
    log: EventLog
    guest_digest: str
    injected: tuple[str, ...] = ()
    """Python code that took part in the run besides what the scenario says."""
