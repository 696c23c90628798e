"""Who was given which blocks of which groups, who let go of them, and who had them otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from faults.plural import counted
from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.names import pass_in_words
from faults.story.subject import Subject
from sim.kernel.log import Record
from sim.oracles.blocks import NULL_BLOCK
from sim.oracles.words import block_list
from sim.request_ids import leg_of, logical_id

_GROUPS_SHOWN = 4
_FORMER_SHOWN = 2
_WRITES_SHOWN = 2


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


@dataclass(frozen=True)
class _LetGo:
    """That a leg let go of its blocks, in the words for it, without which blocks matter."""

    leg: str
    moment: Moment


@dataclass
class _Reuse:
    """That another leg was given blocks which were read later, and its first pass from then on."""

    node: str
    leg: str
    moments: list[Moment]


class Blocks(Chapter):
    """The blocks of the requests, who had the named ones of them before, and those that were read
    after they had gone."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._given: dict[tuple[str, str], _Given] = {}
        self._reused: dict[str, _Reuse] = {}
        self._holding: dict[tuple[str, str], dict[int, None]] = {}
        self._let_go: dict[tuple[str, int], _LetGo] = {}
        self._before: dict[tuple[str, int], _LetGo] = {}
        self._landed = False
        self.kinds = {
            "blocks-held": self._held,
            "blocks-freed": self._freed,
            "forward-began": self._forward_began,
            "landed": self._on_landed,
        }

    def moments(self) -> list[Moment]:
        weight = 4 if self.subject.source_nodes else 3  # where bytes came from blocks of another
        given = [
            Moment(
                given.time_ns,
                f"{node} gives {given.text()} to {leg_of(leg)}",
                weight,
                given.place,
            )
            for (node, leg), given in self._given.items()
            if any(given.groups.values())
        ]
        before = self._told_before()
        reused = [moment for reuse in self._reused.values() for moment in reuse.moments]
        return [*self._moments, *given, *before, *reused, *self._last_writes()]

    def _last_writes(self) -> list[Moment]:
        """Those that came after a transfer, and those into blocks that no transfer has reached."""
        later = [
            Moment(
                time_ns, f"block {block} is written to by {writer}, after the transfer into it", 6
            )
            for time_ns, block, writer in self.subject.overwritten
        ]
        only = [
            Moment(time_ns, f"block {block} is last written to by {writer}", 6)
            for time_ns, block, writer in self.subject.written
            if block not in self.subject.brought
        ]
        return [*later[-_WRITES_SHOWN:], *only[-_WRITES_SHOWN:]]

    def _told_before(self) -> list[Moment]:
        """One line for all named blocks that one let go of; of many those whose bytes were found
        and the last."""
        named: dict[_LetGo, list[int]] = {}
        for (_, block), let_go in self._before.items():
            named.setdefault(let_go, []).append(block)
        ranked = sorted(named.items(), key=lambda item: self._explains(item[0]), reverse=True)
        return [
            replace(
                let_go.moment,
                text=f"{let_go.moment.text}, {block_list(sorted(blocks))} among them",
            )
            for let_go, blocks in ranked[:_FORMER_SHOWN]
        ]

    def _explains(self, let_go: _LetGo) -> tuple[bool, int]:
        return logical_id(let_go.leg) in self.subject.owners, let_go.moment.place

    def _held(self, record: Record) -> None:
        node, request = record.fields["node"], str(record.fields["request"])
        runs = record.fields["blocks"]
        blocks = [i for low, high in runs for i in range(low, high + 1) if i != NULL_BLOCK]
        of_finding = self.subject.named(node)
        named = [block for block in blocks if block in of_finding]
        self._holding.setdefault((node, request), {}).update(dict.fromkeys(named))
        if self.subject.is_about(request):
            self._recall_former(node, named)
            given = self._given.setdefault((node, request), self._now(record))
            if given.time_ns == record.time_ns:
                given.groups.setdefault(record.fields["group"], blocks)
        elif node in self.subject.source_nodes and not self.subject.found:
            self._given_to_another(record, node, request, blocks)

    def _recall_former(self, node: str, blocks: list[int]) -> None:
        for block in blocks:
            let_go = self._let_go.get((node, block))
            if let_go is None or self.subject.found:
                continue
            if self.subject.may_be_of_former(node, block, let_go.leg):
                self._before[node, block] = let_go

    def _now(self, record: Record) -> _Given:
        return _Given(record.time_ns, self.subject.place)

    def _given_to_another(self, record: Record, node: str, request: str, blocks: list[int]) -> None:
        """Keep the last one only, and whoever's bytes were found."""
        concerned = [block for block in blocks if block in self.subject.source_blocks]
        if concerned and not self._landed:
            is_owner = logical_id(request) in self.subject.owners
            key = request if is_owner else node
            text = f"{node} gives {block_list(concerned)} to {leg_of(request)}"
            moment = self.moment(record, text, 5 if is_owner else 3)
            self._reused[key] = _Reuse(node, leg_of(request), [moment])

    def _forward_began(self, record: Record) -> None:
        """Who is given blocks overwrites them only now."""
        for reuse in self._reused.values() if not self._landed else ():
            for leg, start, end in record.fields["requests"]:
                is_its = (record.fields["node"], leg_of(leg)) == (reuse.node, reuse.leg)
                if is_its and len(reuse.moments) == 1:
                    does = pass_in_words(start, end)
                    text = f"a forward pass of {reuse.leg} {does} into its blocks"
                    reuse.moments.append(self.moment(record, text, reuse.moments[0].weight))

    def _on_landed(self, record: Record) -> None:
        self._landed |= record.fields["uid"] in self.subject.transfers

    def _freed(self, record: Record) -> None:
        node, request = record.fields["node"], str(record.fields["request"])
        text = f"{node} lets go of the blocks of {leg_of(request)}"
        held = self._holding.pop((node, request), {})
        if self.subject.is_about(request):
            self.add(record, text, 1 if self.subject.found else 5)
            for block in held:  # told already
                self._let_go.pop((node, block), None)
        else:
            let_go = _LetGo(request, self.moment(record, text, 6))
            self._let_go.update({(node, block): let_go for block in held})
