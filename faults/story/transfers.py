"""What was posted to the network cards, and when it had landed."""

from __future__ import annotations

from typing import Any

from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.reads import parts_in_words
from faults.story.subject import NO_RULE, Subject
from sim.kernel.log import Record
from sim.oracles.blocks import NULL_BLOCK
from sim.oracles.words import block_list

_When = tuple[int, int]
"""Virtual time in ns, and place in the event log."""


class Transfers(Chapter):
    """The transfers that the violation names; if it names none, those that its engine posted
    between its request's blocks and the violation: they may not have landed by then."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._guessing = not subject.transfers
        self._has_blocks = False
        self._lent: dict[int, None] = {}
        self._posted: dict[tuple[Any, Any], tuple[_When, dict[str, Any]]] = {}
        self._landed: dict[tuple[Any, Any], _When] = {}
        self.kinds = {
            "blocks-held": self._held,
            "forward-began": self._forward_began,
            "posted": self._on_posted,
            "landed": self._on_landed,
        }

    def moments(self) -> list[Moment]:
        """One line for all layers, also where a connector reads each by itself."""
        if not self._posted:
            return []
        ((first_ns, place), operation), *_ = self._posted.values()
        uids = sorted({fields["uid"] for _, fields in self._posted.values()})
        numbers = block_list(uids).replace("block", "transfer", 1)
        parts = parts_in_words(len(uids), self.subject.layers)
        source = self._source() if self.subject.source_blocks else ""
        what = f"an RDMA {operation['operation']}{parts}{source}"
        told = [Moment(first_ns, f"{operation['node']} posts {what} ({numbers})", 3, place)]
        if self._landed:
            told.append(self._landing(operation, source, numbers))
        return told

    def _landing(self, operation: dict[str, Any], source: str, numbers: str) -> Moment:
        what = f"the RDMA {operation['operation']} of {operation['node']}{source}"
        missing = len(self._posted) - len(self._landed)
        last = max(self._landed.values())
        if missing:
            text = f"{what} has landed but for {missing} of {len(self._posted)} parts ({numbers})"
        elif min(self._landed.values())[0] != last[0]:
            text = f"the last part of {what} lands ({numbers})"
        else:
            text = f"{what} has landed ({numbers})"
        return Moment(last[0], text, 5, last[1])

    def _held(self, record: Record) -> None:
        fields = record.fields
        self._has_blocks |= self._is_own(fields["request"], fields["node"])
        if fields["node"] in self.subject.source_nodes and self.subject.is_about(fields["request"]):
            blocks = [i for low, high in fields["blocks"] for i in range(low, high + 1)]
            self._lent.update(dict.fromkeys(blocks))

    def _forward_began(self, record: Record) -> None:
        """Where no rule was broken, nothing but this says when the request had what it needs."""
        node = record.fields["node"]
        if self.subject.violation.oracle == NO_RULE:
            legs = [leg for leg, *_ in record.fields["requests"]]
            self._guessing &= not any(self._is_own(leg, node) for leg in legs)

    def _is_own(self, request: Any, node: str) -> bool:
        return self.subject.is_about(request) and node == self.subject.violation.node

    def _concerns(self, uid: Any, node: str) -> bool:
        if self._guessing:
            return self._has_blocks and node == self.subject.violation.node
        return uid in self.subject.transfers and node in self.subject.nodes

    def _on_posted(self, record: Record) -> None:
        fields = record.fields
        node = record.actor.partition("/")[0]
        if not self.subject.found and self._concerns(fields["uid"], node):
            key = (fields["initiator"], fields["uid"])
            when = record.time_ns, self.subject.place
            self._posted.setdefault(key, (when, {**fields, "node": node}))

    def _on_landed(self, record: Record) -> None:
        key = (record.fields["initiator"], record.fields["uid"])
        if key in self._posted:
            self._landed[key] = record.time_ns, self.subject.place

    def _source(self) -> str:
        """Findings name what was wrong of a read, which may have been more: the log only says what
        the requests were given there."""
        blocks = block_list(sorted(self.subject.source_blocks))
        nodes = ", ".join(self.subject.source_nodes)
        is_all = self._lent.keys() - {NULL_BLOCK} <= self.subject.source_blocks.keys()
        return f" from {blocks} of {nodes}" if is_all else f" from {nodes} that includes {blocks}"
