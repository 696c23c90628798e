"""RDMA operations for a space-time diagram: those posted in one go are one arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import filesize

from faults.report.focus import Focus
from faults.report.lanes import Lane, Machines, card_lane
from faults.story.reads import IN_ONE_GO_NS, parts_in_words
from sim.kernel.log import Record
from sim.oracles.words import block_list


@dataclass
class Batch:
    """Operations of one kind between two endpoints; bytes go from ``source`` to ``target``."""

    operation: str
    initiator: str
    source: Lane
    target: Lane
    is_wrong: bool
    first_ns: int
    last_ns: int
    into: str = ""
    layers: int = 0
    """In how many layers wrong bytes were found; 0 if nobody says."""
    bytes: int = 0
    uids: dict[Any, None] = field(default_factory=dict)
    landings: list[int] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)

    @property
    def landed_ns(self) -> int | None:
        """When the last that did had landed; None if nothing has."""
        return max(self.landings, default=None)

    @property
    def told(self) -> str:
        """What was posted, and what became of it if that was no success."""
        count, what = len(self.uids), self.operation
        numbers = block_list(list(self.uids)).replace("block", "transfer", 1)
        if self.is_wrong:  # all of it is one load of one request's blocks
            what += parts_in_words(count, self.layers)
        elif count > 1:
            what = f"{count} × {what}"
        told = f"RDMA {what} posted by {self.initiator}: {filesize.decimal(self.bytes)}, {numbers}"
        ends = ", ".join(f"{count} {status}" for status, count in self.failed.items())
        return f"{told}; {ends}" if ends else told

    @property
    def landed_told(self) -> str:
        """How much has landed, and where the wrong bytes went."""
        missing = len(self.uids) - len(self.landings)
        told = f"{self.operation} landed" + (f" but for {missing}" if missing > 0 else "")
        return f"{told}{self.into}" if self.is_wrong else told


class Transfers:
    """Follows transfers through the records, from posting to completion."""

    def __init__(self, records: Sequence[Record], focus: Focus) -> None:
        self._focus = focus
        self._machines = Machines(records)
        self._batches: list[Batch] = []
        self._last: dict[tuple[Any, ...], Batch] = {}
        self._of_transfer: dict[tuple[Any, ...], Batch] = {}
        self._into = _into(focus)
        for record in records:
            if record.kind == "posted" and focus.is_within(record):
                self._posted(record)
            elif record.kind == "landed":
                self._landed(record)
            elif record.kind in ("completion", "completion-lost"):
                self._completed(record)

    def batches(self) -> list[Batch]:
        """In order of posting."""
        return self._batches

    def _posted(self, record: Record) -> None:
        fields = record.fields
        initiator = record.actor.partition("/")[0]
        peer = self._machines.of_endpoint(fields["target"])
        wrong = fields["uid"] in self._focus.wrong_transfers and initiator in self._focus.nodes
        if not {initiator, peer} <= self._focus.nodes.keys() and not wrong:
            return
        key = (fields["initiator"], fields["target"], fields["operation"], wrong)
        batch = self._last.get(key)
        if batch is None or record.time_ns - batch.last_ns > IN_ONE_GO_NS:
            own, other = card_lane(initiator), card_lane(peer)
            source, target = (other, own) if fields["operation"] == "read" else (own, other)
            batch = Batch(
                fields["operation"],
                "/".join(record.actor.split("/")[:2]),
                source,
                target,
                wrong,
                record.time_ns,
                record.time_ns,
                self._into,
                self._focus.layers,
            )
            self._batches.append(batch)
            self._last[key] = batch
        batch.last_ns = record.time_ns
        batch.bytes += fields["bytes"]
        batch.uids[fields["uid"]] = None
        self._of_transfer[_transfer(record)] = batch

    def _landed(self, record: Record) -> None:
        if batch := self._of_transfer.get(_transfer(record)):
            batch.landings.append(record.time_ns)

    def _completed(self, record: Record) -> None:
        status = record.fields.get("status", "completion lost")
        if status != "SUCCESS" and (batch := self._of_transfer.get(_transfer(record))):
            batch.failed[status] = batch.failed.get(status, 0) + 1


def _into(focus: Focus) -> str:
    """Where the wrong bytes came from and went, if a violation says so."""
    for violation in focus.violations:
        copied = violation.evidence.get("extent", {}).get("copied")
        if copied:
            blocks = block_list(sorted({block for block, _ in copied}))
            sources = block_list(sorted({source for _, source in copied}))
            nodes = ", ".join(violation.evidence["extent"].get("source_nodes", ()))
            return f", including {sources} of {nodes} into {blocks} of {violation.node}"
    return ""


def _transfer(record: Record) -> tuple[Any, ...]:
    keys = ("initiator", "target", "operation", "uid", "queue_pair")
    return tuple(record.fields.get(key) for key in keys)
