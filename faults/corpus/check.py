"""Runs entries of the corpus and compares how they end with what is expected."""

from __future__ import annotations

from typing import Literal

import msgspec

from faults.corpus.entry import Entry, Expected
from faults.running import run
from sim.outcome import Outcome
from sim.stopwatch import wall_clock


class Finding(msgspec.Struct, frozen=True):
    """One entry with one connector: how its run ended, and how that compares."""

    name: str
    connector: str
    expected: Expected | None
    """None if the corpus knows nothing of this connector; it then has to break no rule."""
    found: Expected
    missed: list[str]
    """Kinds of fault that reached nobody: the run says nothing about the report then."""
    verdict: Literal["as expected", "different"]
    event_hash: str
    wall_s: float

    @property
    def differs(self) -> bool:
        return self.verdict == "different"

    @property
    def difference(self) -> str:
        """In one sentence, what was expected instead."""
        who = f"{self.name} with {self.connector}"
        if self.missed:
            return f"{who}: reached nobody: {', '.join(self.missed)}; adapt the entry's faults"
        if self.expected is None:
            return f"{who}: expected no broken rule"
        rules = ", ".join(self.expected.violations) or "no broken rule"
        return f"{who}: expected {self.expected.requests_in_words}, and {rules}"


def check(name: str, entry: Entry, connector: str) -> Finding:
    """Run ``entry`` with ``connector``.

    Raises:
        UsageError: as ``faults.running.run``.
        TestbedError: the testbed itself failed.
    """
    begin = wall_clock()
    faulted = run(entry.scenario_with(connector, source=name))
    outcome = faulted.result.outcome
    expected, found = entry.expected_of(connector), ending(outcome)
    missed = [fault.kind for fault in faulted.faults if not fault.hits]
    fits = not found.violations if expected is None else found == expected
    return Finding(
        name=name,
        connector=connector,
        expected=expected,
        found=found,
        missed=missed,
        verdict="as expected" if fits and not missed else "different",
        event_hash=outcome.event_hash,
        wall_s=wall_clock() - begin,
    )


def ending(outcome: Outcome) -> Expected:
    """How a run ended, as entries write it."""
    rules = {
        "/".join(filter(None, (violation.oracle, violation.evidence.get("kind"))))
        for violation in outcome.violations
    }
    requests = {how: n for how, n in sorted(outcome.requests.items()) if n and how != "total"}
    return Expected(requests, sorted(rules))
