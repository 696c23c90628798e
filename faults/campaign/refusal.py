"""Runs whose engines were configured unlike each other: being refused is the right outcome there.

The rules do not know what was injected, so to them a request that is sent when all is well again
has to succeed. Between engines that do not fit it must not. This excuses that, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from faults.kinds import KINDS
from sim.kernel.log import Record
from sim.oracles import Violation


def without_refusals(
    violations: Sequence[Violation], records: Iterable[Record]
) -> tuple[list[Violation], list[Violation]]:
    """The violations of a run that count, and those that say that engines were refused.

    Args:
        violations: of a run.
        records: of its event log.
    """
    records = list(records) if violations else []
    apart = engines_apart(records)
    counting: list[Violation] = []
    refusals: list[Violation] = []
    for violation in violations:
        refused = violation.evidence.get("outcome") == "error" and bool(
            apart & nodes_of(violation.request_id, records)
        )
        is_refusal = refused and violation.evidence.get("kind") == "not-recovered"
        (refusals if is_refusal else counting).append(violation)
    return counting, refusals


def engines_apart(records: Iterable[Record]) -> set[str]:
    """Those that were configured unlike the others."""
    return {
        record.fields["node"]
        for record in records
        if record.kind == "fault-hit" and KINDS[record.fields["fault_kind"]].sets_apart
    }


def nodes_of(request: str | None, records: Iterable[Record]) -> set[str]:
    """The engines that got a leg of a request."""
    return {
        record.fields["node"]
        for record in records
        if record.kind == "leg-sent" and record.fields["request"] == request
    }
