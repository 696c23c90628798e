"""Whose a starved queue is (sim/oracles/starved_queue.py): vLLM's, or that of who fails loads.

The rules see the queue, and not why loads failed. A connector that fails them on a deployment of
which nothing has gone wrong is not excused by what vLLM makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sim.kernel.log import Record
from sim.oracles import Violation
from sim.oracles.starved_queue import STARVED_QUEUE
from sim.request_ids import logical_id

_CAUSES = ("fault-hit", "engine-died")
"""Records of what makes loads fail without the connector's doing. An engine that dies by itself
counts as such."""


def as_explained(violations: Sequence[Violation], records: Iterable[Record]) -> list[Violation]:
    """The same violations; starved queues are of no kind of their own unless a fault had hit, or an
    engine had died, when the first load failed of those who wait in them."""
    waiting = {
        violation.request_id
        for violation in violations
        if violation.oracle == "liveness" and _is_starved(violation)
    }
    if not waiting or _has_cause(waiting, records):
        return [*violations]
    return [_as_any_other(one) if _is_starved(one) else one for one in violations]


def _has_cause(waiting: set[str | None], records: Iterable[Record]) -> bool:
    """Whether a cause comes before the first failed load, if any failed."""
    is_caused = False
    for record in records:
        is_caused |= record.kind in _CAUSES
        if _is_failed_load(record) and logical_id(record.fields["request"]) in waiting:
            return is_caused
    return False


def _is_failed_load(record: Record) -> bool:
    return record.kind == "receiving-finished" and bool(record.fields["failed"])


def _is_starved(violation: Violation) -> bool:
    return violation.evidence.get("kind") == STARVED_QUEUE


def _as_any_other(violation: Violation) -> Violation:
    evidence: dict[str, Any] = {k: v for k, v in violation.evidence.items() if k != "kind"}
    if violation.oracle == "liveness":
        evidence["kind"] = "not-ended"
    return msgspec.structs.replace(violation, evidence=evidence)
