"""Ends that are right although a rule was broken, and so no failures of a campaign.

The rules do not know what was injected, so to them a request that is sent when all is well again
has to succeed, and an engine has to live. Two things are excused here, and nothing else.

*Refusals*: between engines that were configured unlike each other a request must not succeed.

*Ended steps*: vLLM can fail a single request for a synchronous load that failed only where the
model has one cache group. Otherwise a connector has to end the step, and the engine with it, rather
than let a forward use what is not there. The engine is started again when all is well, and has to
serve then: a load may fail only between engines that were configured unlike each other, or be one
that the workload left. Either takes along whoever else its engine serves.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.campaign.starved_queues import as_explained
from faults.kinds import KINDS
from sim.engine.connectors import get_connector
from sim.kernel.log import Record
from sim.model.presets import get_preset
from sim.oracles import Violation
from sim.request_ids import logical_id
from sim.scenario import Scenario
from sim.scenario.workloads import EPILOGUE


@dataclass
class Judged:
    """The violations of a run by what a campaign makes of them."""

    counting: list[Violation] = field(default_factory=list)
    refusals: list[Violation] = field(default_factory=list)
    ended_steps: list[Violation] = field(default_factory=list)

    @property
    def excused(self) -> list[Violation]:
        """Those that do not count."""
        return [*self.ended_steps, *self.refusals]


def judge(violations: Sequence[Violation], records: Sequence[Record], scenario: Scenario) -> Judged:
    """Divide the violations of a run of ``scenario``, whose event log has ``records``."""
    judged = Judged()
    if not violations:
        return judged
    excuses = _Excuses(records, _words_of_ended_steps(scenario))
    for violation in as_explained(violations, records):
        if excuses.is_refusal(violation):
            judged.refusals.append(violation)
        elif excuses.is_ended_step(violation):
            judged.ended_steps.append(violation)
        else:
            judged.counting.append(violation)
    return judged


def _words_of_ended_steps(scenario: Scenario) -> str:
    """How a connector begins that has to end a step; empty where none has to."""
    has_one_group = get_preset(scenario.model).num_groups == 1
    return "" if has_one_group else get_connector(scenario.connector).step_failure


class _Excuses:
    """What the event log of a run excuses."""

    def __init__(self, records: Iterable[Record], words: str) -> None:
        told: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        deaths: list[tuple[str, str, bool]] = []
        is_at_end = False
        for record in records:
            told[record.kind].append(record.fields)
            if record.kind == "leg-sent":
                is_at_end |= record.fields["request"].startswith(EPILOGUE)
            if record.kind == "engine-died":
                deaths.append((record.fields["node"], record.fields["reason"], is_at_end))
        self._loads = re.compile(rf"{words} (.+?) failed") if words else None
        self._apart = {
            hit["node"] for hit in told["fault-hit"] if KINDS[hit["fault_kind"]].sets_apart
        }
        """Engines that were configured unlike the others."""
        self._served_by: dict[str | None, set[str]] = defaultdict(set)
        """Request → the engines that got a leg of it."""
        for leg in told["leg-sent"]:
            self._served_by[leg["request"]].add(leg["node"])
        self._ended_late: set[str] = set()
        """Engines that had to end when all was well again."""
        self._reasons: dict[str | None, list[str]] = defaultdict(list)
        """Engine → why it ended, where it had to."""
        for node, reason, is_late in deaths:
            if self._had_to(node, reason):
                self._reasons[node].append(reason)
                if is_late:
                    self._ended_late.add(node)

    def is_refusal(self, violation: Violation) -> bool:
        match violation.evidence:
            case {"kind": "not-recovered", "outcome": "error"}:
                return self._touches(self._apart, violation.request_id)
        return False

    def is_ended_step(self, violation: Violation) -> bool:
        match violation.evidence:
            case {"kind": "engine-died"}:
                reasons = self._reasons[violation.node]
                return any(reason in violation.detail for reason in reasons)
            case {"kind": "not-recovered", "outcome": "engine-died"} if self._loads:
                return self._lost_its_engine(violation.request_id)
        return False

    def _lost_its_engine(self, request: str | None) -> bool:
        """Whether it is at the end, and of an engine that had to end then. Its decode leg is never
        sent if that engine ended before; the death of any other counts by itself."""
        is_half_sent = bool(self._ended_late) and len(self._served_by[request]) == 1
        return is_half_sent or self._touches(self._apart | self._ended_late, request)

    def _had_to(self, node: str, reason: str) -> bool:
        if self._loads is None:
            return False
        if sibling := re.fullmatch(r"(\S+) died", reason):
            return bool(self._reasons[sibling[1]])
        loads = self._loads.search(reason)
        if loads is None:
            return False
        requests = map(logical_id, loads[1].split(", "))
        late = (request for request in requests if request.startswith(EPILOGUE))
        return all(self._touches(self._apart, request) for request in late)

    def _touches(self, nodes: set[str], request: str | None) -> bool:
        return not nodes.isdisjoint(self._served_by[request])
