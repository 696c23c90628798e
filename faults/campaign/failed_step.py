"""Synchronous loads that failed: of a model with several cache groups, the step's end is right.

vLLM can fail a single request for a synchronous load only where the model has one cache group.
Otherwise a connector has to end the step, and the engine with it, rather than let a forward use
what is not there. This excuses that end, and nothing else: the engine is started again when all is
well, and has to serve then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from faults.campaign.refusal import engines_apart, nodes_of
from sim.engine.connectors import get_connector
from sim.kernel.log import Record
from sim.model.presets import get_preset
from sim.oracles import Violation
from sim.request_ids import logical_id
from sim.scenario import Scenario
from sim.scenario.workloads import EPILOGUE


def without_failed_steps(
    violations: Sequence[Violation], records: Iterable[Record], scenario: Scenario
) -> tuple[list[Violation], list[Violation]]:
    """The violations of a run that count, and those that say that a step was ended as it had to be.

    Args:
        violations: of a run.
        records: of its event log.
        scenario: of the run.
    """
    words = get_connector(scenario.connector).step_failure
    if not violations or not words or get_preset(scenario.model).num_groups == 1:
        return list(violations), []
    ends = _FailedSteps(list(records), words)
    excused = [violation for violation in violations if ends.excuse(violation)]
    return [violation for violation in violations if violation not in excused], excused


class _FailedSteps:
    """The ends of engines that a failed load explains.

    When nothing is broken any more a load may fail only between engines that were configured
    unlike each other; it takes along whoever else its engine serves.
    """

    def __init__(self, records: Sequence[Record], words: str) -> None:
        self._records = records
        self._apart = engines_apart(records)
        self._loads = re.compile(rf"{words} (.+?) failed")
        self._refusers = set(self._apart)
        """And who ended because one of them refused it at the end, or the other way round."""
        self._reasons: dict[str, list[str]] = {}
        for record in records:
            if record.kind == "engine-died" and self._had_to(**record.fields):
                self._reasons.setdefault(record.fields["node"], []).append(record.fields["reason"])

    def excuse(self, violation: Violation) -> bool:
        match violation.evidence:
            case {"kind": "engine-died"}:
                reasons = self._reasons.get(violation.node or "", ())
                return any(reason in violation.detail for reason in reasons)
            case {"kind": "not-recovered", "outcome": "engine-died"}:
                return self._touches(self._refusers, violation.request_id)
        return False

    def _had_to(self, *, node: str, reason: str, **_: Any) -> bool:
        if sibling := re.fullmatch(r"(\S+) died", reason):
            return sibling[1] in self._reasons
        loads = self._loads.search(reason)
        if loads is None:
            return False
        requests = map(logical_id, loads[1].split(", "))
        late = [request for request in requests if request.startswith(EPILOGUE)]
        if not all(self._touches(self._apart, request) for request in late):
            return False
        if late:
            self._refusers.add(node)
        return True

    def _touches(self, nodes: set[str], request: str | None) -> bool:
        return bool(nodes & nodes_of(request, self._records))
