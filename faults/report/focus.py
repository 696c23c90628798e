"""What the drawings of a run are about: requests, engines, transfers, and from when to when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.story import subject_of
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.request_ids import logical_id
from sim.units import seconds_to_ns

_REQUESTS_OF_A_PASS = 3

Blocks = dict[str, dict[int, None]]  # engine → its blocks, in order


@dataclass
class Focus:
    """``wrong`` are the transfers and the blocks that the violations name, of a read all its
    layers; ``layers`` says in how many of them wrong bytes were found, 0 if nobody does.
    ``overwritten`` says when which block was written to after a transfer, by whom, and on which
    rank of which engine."""

    requests: dict[str, None]
    nodes: dict[str, None] = field(default_factory=dict)
    wrong_transfers: dict[Any, None] = field(default_factory=dict)
    wrong_blocks: Blocks = field(default_factory=dict)
    overwritten: dict[Any, None] = field(default_factory=dict)
    layers: int = 0
    violations: list[Violation] = field(default_factory=list)
    from_ns: int = 0
    until_ns: int = 0

    def is_about(self, request: object) -> bool:
        """Whether a leg, or a request, is one of those that are drawn."""
        return request is not None and logical_id(str(request)) in self.requests

    def is_within(self, record: Record) -> bool:
        return self.from_ns <= record.time_ns <= self.until_ns


def focus_on(records: Sequence[Record], violations: Sequence[Violation]) -> Focus:
    """The requests of the story, and whoever's bytes were found; of a run that broke no rule, the
    first few requests."""
    if violations:
        subject = subject_of(violations, records)
        focus = Focus(
            requests={**subject.requests, **subject.owners},
            nodes=dict(subject.nodes),
            wrong_transfers=dict(subject.transfers),
            layers=subject.layers,
        )
        for node in subject.source_nodes:
            focus.wrong_blocks[node] = dict(subject.source_blocks)
        for violation in violations:
            if violation is subject.violation or subject.is_about(violation.request_id):
                _add_violation(focus, violation)
    else:
        arrived = [r.fields["request"] for r in records if r.kind == "request-arrived"]
        focus = Focus(requests=dict.fromkeys(arrived[:_REQUESTS_OF_A_PASS]))
    _set_scope(focus, records)
    return focus


def _add_violation(focus: Focus, violation: Violation) -> None:
    focus.violations.append(violation)
    evidence = violation.evidence
    if violation.node is not None:
        rank = int(evidence.get("rank", 0))
        for write in evidence.get("extent", {}).get("overwritten", ()):
            focus.overwritten[*write, violation.node, rank] = None
        blocks = focus.wrong_blocks.setdefault(violation.node, {})
        for place in (evidence, evidence.get("extent", {})):
            blocks.update(dict.fromkeys(place.get("block_ids", ())))


def _set_scope(focus: Focus, records: Sequence[Record]) -> None:
    """The engines of the legs, and the time from the first record about the requests to the
    violation, or to the last of them."""
    times = []
    for record in records:
        fields = record.fields
        if focus.is_about(fields.get("request")):
            times.append(record.time_ns)
            if record.kind == "leg-sent":
                focus.nodes[fields["node"]] = None
    focus.from_ns = times[0] if times else 0
    told = [seconds_to_ns(violation.time_s) for violation in focus.violations]
    focus.until_ns = max(told or times or [0])
    focus.nodes = dict.fromkeys(sorted(focus.nodes, key=lambda node: (node[0] != "p", node)))
