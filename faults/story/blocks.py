"""Who was given which blocks of which groups, who let go of them, and who got them next."""

from __future__ import annotations

from dataclasses import dataclass, field

from faults.plural import counted
from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.subject import Subject
from sim.kernel.log import Record
from sim.oracles.blocks import NULL_BLOCK
from sim.oracles.words import block_list
from sim.request_ids import leg_of, logical_id

_GROUPS_SHOWN = 4


@dataclass
class _Given:
    """The first blocks that a request got on an engine, by group; all at one time."""

    time_ns: int
    place: int
    groups: dict[int, list[int]] = field(default_factory=dict)

    def text(self) -> str:
        """The blocks in words; groups are named when there are several."""
        groups = {group: blocks for group, blocks in self.groups.items() if blocks}
        if len(groups) < 2:
            return block_list([block for blocks in groups.values() for block in blocks])
        shown = [f"{block_list(blocks)} (group {g})" for g, blocks in groups.items()]
        more = f" and of {counted(len(shown) - _GROUPS_SHOWN, 'more group')}"
        return ", ".join(shown[:_GROUPS_SHOWN]) + (more if len(shown) > _GROUPS_SHOWN else "")


class Blocks(Chapter):
    """The blocks of the requests, and those that were read after they had gone."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._given: dict[tuple[str, str], _Given] = {}
        self._reused: dict[str, Moment] = {}
        self._landed = False
        self.kinds = {
            "blocks-held": self._held,
            "blocks-freed": self._freed,
            "landed": self._on_landed,
        }

    def moments(self) -> list[Moment]:
        given = [
            Moment(given.time_ns, f"{node} gives {given.text()} to {leg_of(leg)}", 3, given.place)
            for (node, leg), given in self._given.items()
            if any(given.groups.values())
        ]
        return [*self._moments, *given, *self._reused.values()]

    def _held(self, record: Record) -> None:
        node, request = record.fields["node"], str(record.fields["request"])
        runs = record.fields["blocks"]
        blocks = [i for low, high in runs for i in range(low, high + 1) if i != NULL_BLOCK]
        if self.subject.is_about(request):
            given = self._given.setdefault((node, request), self._now(record))
            if given.time_ns == record.time_ns:
                given.groups.setdefault(record.fields["group"], blocks)
        elif node in self.subject.source_nodes and not self.subject.found:
            self._given_to_another(record, node, request, blocks)

    def _now(self, record: Record) -> _Given:
        return _Given(record.time_ns, self.subject.place)

    def _given_to_another(self, record: Record, node: str, request: str, blocks: list[int]) -> None:
        """Keep the last one only, and whoever's bytes were found."""
        concerned = [block for block in blocks if block in self.subject.source_blocks]
        if concerned and not self._landed:
            is_owner = logical_id(request) in self.subject.owners
            key = request if is_owner else node
            text = f"{node} gives {block_list(concerned)} to {leg_of(request)}"
            self._reused[key] = self.moment(record, text, 5 if is_owner else 3)

    def _on_landed(self, record: Record) -> None:
        self._landed |= record.fields["uid"] in self.subject.transfers

    def _freed(self, record: Record) -> None:
        node, request = record.fields["node"], record.fields["request"]
        if self.subject.is_about(request):
            weight = 1 if self.subject.found else 5
            self.add(record, f"{node} lets go of the blocks of {leg_of(request)}", weight)
