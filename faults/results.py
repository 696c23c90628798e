"""What the public functions return: one run, and a campaign of many.

Both are data. They are the same whichever process did the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from faults.campaign.result import SeedResult, tested_nothing
from faults.coverage import FaultReport, Table
from faults.plural import counted
from sim.oracles import Violation
from sim.outcome import Outcome, Verdict


class RuleBroken(AssertionError):
    """A run or a campaign that had to pass did not; the message is the whole story."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What came of one run of a scenario.

    Attributes:
        outcome: verdict, violations with their evidence, requests, transfers, times, event hash.
        faults: what became of each fault of the scenario, in its order.
        coverage: fault kind → phase of a request's life → how often the fault reached it there.
        text: what ``faultlab run`` prints of it: the facts, what was found, how it came about.
        artifact: the directory of the run, which ``faultlab replay`` takes; None if there is none.
    """

    outcome: Outcome
    faults: list[FaultReport]
    coverage: Table
    text: str
    artifact: str | None

    @property
    def verdict(self) -> Verdict:
        """``pass``, ``violation``, or ``incomplete`` when the run was cut short."""
        return self.outcome.verdict

    @property
    def passed(self) -> bool:
        """Whether the verdict is ``pass``."""
        return self.outcome.passed

    @property
    def violations(self) -> list[Violation]:
        """What was found, each with the rule (``oracle``), the place and the evidence."""
        return self.outcome.violations

    def __repr__(self) -> str:
        """Verdict, broken rules and artifact: what a prompt has room for."""
        rules = self.outcome.signature()
        return f"Run(verdict={self.verdict!r}, rules={rules!r}, artifact={self.artifact!r})"

    def require_pass(self) -> None:
        """RuleBroken, with the story, unless the run passed."""
        if not self.passed:
            raise RuleBroken(self.text)


class CampaignRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a campaign.

    Attributes:
        results: one for each seed that ran, by seed. They are read from ``out`` when they are first
            looked at, where there is one.
        summary: counts, groups of failures, coverage and speed: the JSON document of
            ``faultlab campaign``.
    """

    results: Sequence[SeedResult]
    summary: dict[str, Any]

    @property
    def new_groups(self) -> list[str]:
        """Groups of failures that are neither vLLM's own nor given as known."""
        return list(self.summary["new_groups"])

    @property
    def passed(self) -> bool:
        """Whether every seed was run, none in error, not all refused, and no failure is new."""
        summary = self.summary
        untested = summary["errors"] or summary["not_run"] or tested_nothing(summary)
        return not untested and not self.new_groups

    def __repr__(self) -> str:
        """Counts, and how many seeds fell into each group of failures."""
        names = ("runs", "passed", "failed", "refused", "failed_closed", "errors", "not_run")
        counts = ", ".join(f"{name}={self.summary[name]}" for name in names)
        groups = {group["group"]: group["seeds"] for group in self.summary["groups"]}
        return f"CampaignRun({counts}, groups={groups!r}, new_groups={self.new_groups!r})"

    def require_pass(self) -> None:
        """RuleBroken, with the first words of each new group, unless the campaign passed."""
        if self.passed:
            return
        lines = [
            f"{group['group']} ({counted(group['seeds'], 'seed')}, such as "
            f"{group['smallest_seed']}): "
            f"{group['detail']}"
            for group in self.summary["groups"]
            if not group["known"]
        ]
        errors = [f"error in seed {e['seed']}: {e['detail']}" for e in self.summary["error_seeds"]]
        not_run = self.summary["not_run"]
        missing = [f"not run: {counted(not_run, 'seed')}"] if not_run else []
        refused = [f"refused, as seed {e['smallest_seed']}: {e['detail']}" for e in self._refused]
        raise RuleBroken("\n".join([*lines, *errors, *missing, *refused]))

    @property
    def _refused(self) -> list[dict[str, Any]]:
        return self.summary["unserved"] if tested_nothing(self.summary) else []
