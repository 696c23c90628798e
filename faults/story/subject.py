"""What a story is about: requests, engines, blocks and transfers, as the violations name them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.story.reads import with_other_layers
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.request_ids import logical_id
from sim.scenario.workloads import EPILOGUE
from sim.units import seconds_to_ns

_TOLD_FIRST = ("wrong-bytes", "use-after-free", "liveness", "release-once", "leak")
_ABOUT_BYTES = ("wrong-bytes", "use-after-free")
_MAX_REQUESTS = 2
_WRITTEN = re.compile(
    r"block (?P<block>\d+) was last written at (?P<when>\S+) s by (?P<writer>(?!transfer ).+)"
)
NO_RULE = "difference"
"""In place of an oracle, where a story is told of a run that broke no rule."""
Names = dict[Any, None]  # in order, each once


@dataclass
class Subject:
    """While the story is told, ``found`` fills with the oracles that have spoken, and ``place`` is
    that of the record at hand in the event log."""

    violation: Violation
    requests: Names = field(default_factory=dict)
    nodes: Names = field(default_factory=dict)
    owners: Names = field(default_factory=dict)
    transfers: Names = field(default_factory=dict)
    blocks: Names = field(default_factory=dict)
    """What findings about bytes name of the violation's engine."""
    brought: Names = field(default_factory=dict)
    """Those of them whose bytes a transfer is known to have brought."""
    source_blocks: Names = field(default_factory=dict)
    source_nodes: Names = field(default_factory=dict)
    overwritten: Names = field(default_factory=dict)
    written: Names = field(default_factory=dict)
    """Last writes into blocks of findings, none of transfers: when, which block, and by whom."""
    found: Names = field(default_factory=dict)
    layers: int = 0
    """In how many layers wrong bytes were found; 0 if nobody says."""
    place: int = 0

    def is_about(self, request_id: Any) -> bool:
        """Whether a leg, or a request, is one of those that the story is about."""
        return request_id is not None and logical_id(str(request_id)) in self.requests

    def named(self, node: str) -> Names:
        """The blocks of an engine that findings about bytes name."""
        own = self.blocks if node == self.violation.node else {}
        return {**own, **(self.source_blocks if node in self.source_nodes else {})}

    def may_be_of_former(self, node: str, block: int, leg: str) -> bool:
        """Whether what was wrong with a block may come from ``leg``, which had it before: it is
        not if a transfer put other bytes there that nobody has written over."""
        if node == self.violation.node and block in self.blocks:
            written = (written for _, written, _ in self.overwritten)
            return block not in self.brought or block in written
        return block in self.named(node) and logical_id(leg) in self.owners

    def add(self, violation: Violation) -> None:
        """Take in where one more violation points to."""
        evidence = violation.evidence
        extent = evidence.get("extent", {})
        _add(self.transfers, [evidence["transfer"]] if "transfer" in evidence else [])
        _add(self.transfers, extent.get("transfers", ()))
        self.layers = max(self.layers, len(extent.get("layers", ())))
        _add(self.source_nodes, [evidence["source_node"]] if "source_node" in evidence else [])
        _add(self.source_nodes, extent.get("source_nodes", ()))
        # What a drafter wrote belongs to a leg of its engine, and to nobody else.
        _add(self.owners, map(logical_id, extent.get("owners", ())))
        _add(self.overwritten, map(tuple, extent.get("overwritten", ())))
        for place in (evidence, extent):
            _add(self.source_blocks, place.get("source_block_ids", ()))
            if violation.oracle in _ABOUT_BYTES and violation.node == self.violation.node:
                _add(self.blocks, place.get("block_ids", ()))
                _add(self.brought, (block for block, _ in place.get("copied", ())))
        for link in evidence.get("chain", ()):
            if write := _WRITTEN.fullmatch(link):
                when_ns = seconds_to_ns(float(write["when"]))
                _add(self.written, [(when_ns, int(write["block"]), write["writer"])])
        if "source_block_ids" in evidence:
            _add(self.brought, evidence.get("block_ids", ()))
        _add(self.nodes, [violation.node] if violation.node else [])
        _add(self.nodes, self.source_nodes)


def subject_of(violations: Sequence[Violation], records: Sequence[Record]) -> Subject:
    """The violation that says most, and what others say about the same requests.

    What is wrong with an engine is also about the requests that it served just then. If faults
    reached other requests only, the first of those belongs to the story.
    """
    told = min(violations, key=_says_little)  # the first of those that say most
    subject = Subject(told, dict.fromkeys(_requests_of(told)))
    if told.node is not None and not subject.requests:
        until_ns = seconds_to_ns(told.time_s)
        _add(subject.requests, _under_way(records, told.node, until_ns)[-_MAX_REQUESTS:])
    if told.oracle not in _ABOUT_BYTES and not _struck(records, subject.requests):
        _add(subject.requests, _struck(records)[:1])
    for violation in violations:
        if violation is told or subject.is_about(violation.request_id):
            subject.add(violation)
    whole = with_other_layers(records, subject.transfers, subject.nodes, subject.layers)
    _add(subject.transfers, whole)
    return subject


def rank_of(oracle: str) -> int:
    """Low for rules of which a breach says much about what went wrong."""
    return _TOLD_FIRST.index(oracle) if oracle in _TOLD_FIRST else len(_TOLD_FIRST)


def _says_little(violation: Violation) -> tuple[bool, int]:
    """The epilogue's request mostly suffers from what went wrong with another before."""
    of_epilogue = all(request.startswith(EPILOGUE) for request in _requests_of(violation))
    is_late = bool(_requests_of(violation)) and of_epilogue
    return is_late, rank_of(violation.oracle)


def _struck(records: Sequence[Record], among: Container[str] | None = None) -> list[str]:
    """The requests that faults reached, those ``among`` some only, in order.

    A transfer may reach into blocks of a common prefix; it is for who came last.
    """
    reached: list[str] = []
    for record in records:
        if record.kind == "fault-hit":
            requests = list(record.fields["requests"])
            reached += reversed(requests) if "item" in record.fields else requests
    return [request for request in reached if among is None or request in among]


def _requests_of(violation: Violation) -> list[str]:
    """A leak is about whoever still holds blocks, which its evidence lists."""
    legs = [violation.request_id] if violation.request_id else violation.evidence.get("requests")
    return list(dict.fromkeys(logical_id(leg) for leg in legs or ()))[:_MAX_REQUESTS]


def _under_way(records: Sequence[Record], node: str, until_ns: int) -> list[str]:
    """The requests with legs on ``node`` when it died, or by then, the latest last."""
    legs: Names = {}
    for record in records:
        fields = record.fields
        is_death = record.kind == "engine-died" and fields["node"] == node
        if is_death or record.time_ns > until_ns > 0:
            break
        if record.kind == "leg-sent" and fields["node"] == node:
            legs[fields["leg"]] = None
        elif record.kind == "leg-finished":
            legs.pop(fields["leg"], None)
    return list(dict.fromkeys(logical_id(leg) for leg in legs))


def _add(names: Names, more: Iterable[Any]) -> None:
    names.update(dict.fromkeys(more))
