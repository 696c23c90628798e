"""How a violation came about: the few records of the event log that lead to it, as sentences.

The story is about one request: who held the blocks, who let go of them, who got them next, what
was read from where, and what was found. It only selects and words records; it concludes
nothing that an oracle has not said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.kernel.log import Record
from sim.oracles import Violation
from sim.oracles.words import block_list
from sim.request_ids import logical_id

MAX_MOMENTS = 12
_TOLD_FIRST = ("wrong-bytes", "use-after-free")
_LOGS_SHOWN = 3


@dataclass(frozen=True)
class Moment:
    """One line of the story. The lowest ``weight`` is left out first when there are too many."""

    time_ns: int
    text: str
    weight: int


@dataclass
class _Subject:
    """What the story is about, as the violations of one request name it."""

    violation: Violation
    request: str | None
    nodes: dict[str, None] = field(default_factory=dict)
    owners: dict[str, None] = field(default_factory=dict)
    transfers: dict[int, None] = field(default_factory=dict)
    source_blocks: dict[int, None] = field(default_factory=dict)
    source_nodes: dict[str, None] = field(default_factory=dict)

    def add(self, violation: Violation) -> None:
        """Take in where one more violation points to."""
        evidence = violation.evidence
        extent = evidence.get("extent", {})
        transfers = [evidence["transfer"]] if "transfer" in evidence else []
        sources = [evidence["source_node"]] if "source_node" in evidence else []
        self.transfers.update(dict.fromkeys([*transfers, *extent.get("transfers", ())]))
        self.source_nodes.update(dict.fromkeys([*sources, *extent.get("source_nodes", ())]))
        self.owners.update(dict.fromkeys(extent.get("owners", ())))
        for place in (evidence, extent):
            self.source_blocks.update(dict.fromkeys(place.get("source_block_ids", ())))
        nodes = [violation.node] if violation.node else []
        self.nodes.update(dict.fromkeys([*nodes, *self.source_nodes]))

    def is_about(self, request_id: Any) -> bool:
        return self.request is not None and logical_id(str(request_id)) == self.request


def tell(records: Sequence[Record], violations: Sequence[Violation]) -> list[Moment]:
    """The story of the violation that says most, at most MAX_MOMENTS lines in order of time."""
    if not violations:
        return []
    subject = _subject(violations)
    moments = _Telling(subject).of(records)
    while len(moments) > MAX_MOMENTS:
        # Of equal weight the middle is what the story can best do without.
        least = min(moment.weight for moment in moments)
        candidates = [i for i, moment in enumerate(moments) if moment.weight == least]
        del moments[candidates[len(candidates) // 2]]
    return moments


def _subject(violations: Sequence[Violation]) -> _Subject:
    by_oracle = {v.oracle: v for v in reversed(violations)}
    told = next((by_oracle[name] for name in _TOLD_FIRST if name in by_oracle), violations[0])
    request = None if told.request_id is None else logical_id(told.request_id)
    subject = _Subject(told, request)
    for violation in violations:
        if violation is told or (request and subject.is_about(violation.request_id)):
            subject.add(violation)
    return subject


class _Telling:
    """Goes through the records once, in order of time."""

    def __init__(self, subject: _Subject) -> None:
        self._subject = subject
        self._moments: list[Moment] = []
        self._holding: dict[tuple[str, str], None] = {}
        self._reused: dict[str, Moment] = {}
        self._operations: dict[tuple[Any, Any], dict[str, Any]] = {}
        self._transfers: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._logs: list[Moment] = []
        self._found: dict[str, None] = {}
        self._kinds: dict[str, Callable[[Record], None]] = {
            "request-arrived": self._arrived,
            "leg-sent": self._leg_sent,
            "hand-off-held": self._hand_off_held,
            "blocks-held": self._blocks_held,
            "blocks-freed": self._blocks_freed,
            "posted": self._posted,
            "landed": self._landed,
            "receiving-finished": self._receiving_finished,
            "violation": self._violation,
            "request-ended": self._request_ended,
            "log": self._log,
            "task-failed": self._log,
            "engine-died": self._engine_died,
        }

    def of(self, records: Sequence[Record]) -> list[Moment]:
        for record in records:
            handler = self._kinds.get(record.kind)
            if handler is not None:
                handler(record)
        self._transfers_told("posted", "{node} posts an RDMA {operation}{source}")
        self._transfers_told("landed", "the RDMA {operation} of {node}{source} has landed")
        moments = [*self._moments, *self._reused.values(), *self._logs[-_LOGS_SHOWN:]]
        return sorted(moments, key=lambda moment: moment.time_ns)

    def _add(self, record: Record, text: str, weight: int) -> None:
        self._moments.append(Moment(record.time_ns, text, weight))

    # -------------------------------------------------------- the request's way

    def _arrived(self, record: Record) -> None:
        fields = record.fields
        if self._subject.is_about(fields["request"]):
            lengths = f"{fields['prompt_tokens']} tokens in, {fields['max_tokens']} out"
            self._add(record, f"{fields['request']} arrives ({lengths})", 2)

    def _leg_sent(self, record: Record) -> None:
        if self._subject.is_about(record.fields["request"]):
            leg, node = record.fields["leg"], record.fields["node"]
            self._add(record, f"the router sends {leg} to {node}", 1)

    def _hand_off_held(self, record: Record) -> None:
        fields = record.fields
        if self._subject.is_about(fields["request"]):
            text = f"the router holds {fields['request']} back for {fields['seconds']:g} s"
            self._add(record, text, 4)

    def _receiving_finished(self, record: Record) -> None:
        fields = record.fields
        if self._subject.is_about(fields["request"]):
            how = "as failed" if fields["failed"] else "as complete"
            self._add(record, f"{fields['node']} reports the load of {fields['request']} {how}", 2)

    def _request_ended(self, record: Record) -> None:
        fields = record.fields
        if self._subject.is_about(fields["request"]):
            outcome = f"{fields['outcome']!r} and {fields['tokens']} tokens"
            self._add(record, f"{fields['request']} ends with {outcome}", 2)

    # ------------------------------------------------------------------ blocks

    def _blocks_held(self, record: Record) -> None:
        node, request = record.fields["node"], str(record.fields["request"])
        blocks = [i for low, high in record.fields["blocks"] for i in range(low, high + 1)]
        if self._subject.is_about(request):
            if (node, request) not in self._holding:
                self._add(record, f"{node} gives {block_list(blocks)} to {request}", 3)
            self._holding[node, request] = None
        elif node in self._subject.source_nodes and not self._found:
            self._given_to_another(record, node, request, blocks)

    def _given_to_another(
        self, record: Record, node: str, request: str, blocks: Sequence[int]
    ) -> None:
        """Keep the last one only, and whoever's bytes were found."""
        concerned = [block for block in blocks if block in self._subject.source_blocks]
        if concerned and not self._landed_already():
            is_owner = logical_id(request) in self._subject.owners
            key = request if is_owner else node
            text = f"{node} gives {block_list(concerned)} to {request}"
            self._reused[key] = Moment(record.time_ns, text, 5 if is_owner else 3)

    def _landed_already(self) -> bool:
        return "landed" in self._transfers

    def _blocks_freed(self, record: Record) -> None:
        node, request = record.fields["node"], record.fields["request"]
        if self._subject.is_about(request):
            weight = 1 if self._found else 5
            self._add(record, f"{node} lets go of the blocks of {request}", weight)

    # --------------------------------------------------------------- transfers

    def _posted(self, record: Record) -> None:
        fields = record.fields
        if fields["uid"] in self._subject.transfers and not self._found:
            node = record.actor.partition("/")[0]
            if node in self._subject.nodes:
                operation = {**fields, "node": node}
                self._operations[fields["initiator"], fields["uid"]] = operation
                self._transferred("posted", record, operation)

    def _landed(self, record: Record) -> None:
        operation = self._operations.get((record.fields["initiator"], record.fields["uid"]))
        if operation is not None:
            self._transferred("landed", record, operation)

    def _transferred(self, kind: str, record: Record, operation: dict[str, Any]) -> None:
        self._transfers.setdefault(kind, (record.time_ns, []))[1].append(operation)

    def _transfers_told(self, kind: str, sentence: str) -> None:
        """One line for all layers: a connector reads each by itself."""
        if kind not in self._transfers:
            return
        time_ns, operations = self._transfers[kind]
        uids = list(dict.fromkeys(operation["uid"] for operation in operations))
        source = f" from {_source_of(self._subject)}" if self._subject.source_blocks else ""
        text = sentence.format_map({**operations[0], "source": source})
        numbers = block_list(uids).replace("block", "transfer", 1)
        self._moments.append(Moment(time_ns, f"{text} ({numbers})", 5 if kind == "landed" else 3))

    # --------------------------------------------------------- what people said

    def _violation(self, record: Record) -> None:
        fields = record.fields
        same_node = self._subject.request is None and fields["node"] in self._subject.nodes
        if not (same_node or self._subject.is_about(fields["request"])):
            return
        if fields["oracle"] not in self._found:
            self._found[fields["oracle"]] = None
            who = fields["request"] or fields["node"]
            self._add(record, f"{fields['oracle']} is reported for {who}", 6)

    def _engine_died(self, record: Record) -> None:
        if record.fields["node"] in self._subject.nodes:
            self._add(record, f"{record.fields['node']} dies: {record.fields['reason']}", 5)

    def _log(self, record: Record) -> None:
        node = record.actor.partition("/")[0]
        if node in self._subject.nodes and not self._found:
            message = str(record.fields["message"])
            self._logs.append(Moment(record.time_ns, f"{node} logs: {message[:160]}", 3))


def _source_of(subject: _Subject) -> str:
    blocks = block_list(sorted(subject.source_blocks))
    return f"{blocks} of {', '.join(subject.source_nodes)}"
