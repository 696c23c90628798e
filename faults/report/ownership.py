"""Who held which blocks when: a row for blocks that had the same holders all the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from faults.report import svg
from faults.report.axis import TimeAxis
from faults.report.focus import Focus
from sim.kernel.log import Record
from sim.oracles.blocks import NULL_BLOCK
from sim.oracles.words import block_list
from sim.request_ids import leg_of
from sim.units import ns_to_seconds

_NAMES, _WIDTH, _ROW, _LETTER = 150, 900, 20, 6.6
_MOST_ROWS = 28  # of each engine
_COLOURS = 8


@dataclass(frozen=True)
class Holding:
    """From a time to a time the same requests held a block; nobody, if there are none."""

    from_ns: int
    until_ns: int
    holders: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """Blocks of an engine with one history; ``is_wrong``: a violation names them."""

    node: str
    blocks: list[int]
    holdings: tuple[Holding, ...]
    is_wrong: bool


@dataclass
class _Pool:
    """The blocks of one engine, and who has held each since when."""

    since: dict[int, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    past: dict[int, list[Holding]] = field(default_factory=dict)
    of_leg: dict[str, dict[int, None]] = field(default_factory=dict)

    def change(self, block: int, time_ns: int, holders: tuple[str, ...]) -> None:
        from_ns, before = self.since.get(block, (0, ()))
        if before and time_ns > from_ns:
            self.past.setdefault(block, []).append(Holding(from_ns, time_ns, before))
        self.since[block] = (time_ns, holders)

    def holders(self, block: int) -> tuple[str, ...]:
        return self.since.get(block, (0, ()))[1]

    def hold(self, leg: str, blocks: Iterable[int], time_ns: int) -> None:
        for block in blocks:
            if block != NULL_BLOCK and leg not in self.holders(block):
                self.of_leg.setdefault(leg, {})[block] = None
                self.change(block, time_ns, (*self.holders(block), leg))

    def free(self, leg: str, time_ns: int) -> None:
        for block in self.of_leg.pop(leg, ()):
            left = tuple(holder for holder in self.holders(block) if holder != leg)
            self.change(block, time_ns, left)


def histories(records: Iterable[Record], until_ns: int) -> dict[str, dict[int, list[Holding]]]:
    """For each engine and block who held it, until ``until_ns``."""
    pools: dict[str, _Pool] = {}
    for record in records:
        if record.time_ns > until_ns:
            break
        fields = record.fields
        if record.kind == "blocks-held":
            blocks = (b for low, high in fields["blocks"] for b in range(low, high + 1))
            pool = pools.setdefault(fields["node"], _Pool())
            pool.hold(leg_of(fields["request"]), blocks, record.time_ns)
        elif record.kind == "blocks-freed" and fields["node"] in pools:
            pools[fields["node"]].free(leg_of(fields["request"]), record.time_ns)
        elif record.kind == "engine-started" and fields["node"] in pools:
            pool = pools[fields["node"]]  # its memory is new
            for leg in list(pool.of_leg):
                pool.free(leg, record.time_ns)
    for pool in pools.values():
        for block in list(pool.since):
            pool.change(block, until_ns, ())
    return {node: pool.past for node, pool in pools.items()}


def rows(records: Sequence[Record], focus: Focus) -> list[Row]:
    """The blocks that violations name and those of the requests, engine by engine."""
    found = []
    for node, blocks in sorted(histories(records, focus.until_ns).items()):
        wrong = focus.wrong_blocks.get(node, {})
        wanted = [
            block
            for block, past in sorted(blocks.items())
            if block in wrong or any(focus.is_about(h) for p in past for h in p.holders)
        ]
        found += _merged(node, wanted, blocks, wrong)
    return found


def _merged(
    node: str, wanted: list[int], blocks: dict[int, list[Holding]], wrong: dict[int, None]
) -> list[Row]:
    merged: dict[tuple[tuple[Holding, ...], bool], list[int]] = {}
    for block in wanted:
        merged.setdefault((tuple(blocks[block]), block in wrong), []).append(block)
    return [Row(node, ids, past, is_wrong) for (past, is_wrong), ids in merged.items()]


def ownership(records: Sequence[Record], focus: Focus) -> Markup:
    """The drawing; empty if no block was held."""
    found = rows(records, focus)
    kept: list[Row] = []
    for node in dict.fromkeys(row.node for row in found):
        of_node = [row for row in found if row.node == node]
        of_node.sort(key=lambda row: not row.is_wrong)
        kept += sorted(of_node[:_MOST_ROWS], key=lambda row: row.blocks[0])
    return _Picture(kept, focus).draw() if kept else Markup()


class _Picture:
    def __init__(self, kept: Sequence[Row], focus: Focus) -> None:
        self._rows, self._focus = kept, focus
        times = [t for row in kept for h in row.holdings for t in (h.from_ns, h.until_ns)]
        self._axis = TimeAxis([*times, focus.until_ns], _NAMES, _WIDTH)
        legs = dict.fromkeys(leg for row in kept for h in row.holdings for leg in h.holders)
        names = sorted(legs, key=lambda leg: not focus.is_about(leg))
        self._colours = {leg: number % _COLOURS for number, leg in enumerate(names)}
        self._height = 0.0

    def draw(self) -> Markup:
        parts: list[Markup] = []
        node, y = "", 6.0
        for row in self._rows:
            if row.node != node:
                node, y = row.node, y + 22
                parts.append(svg.text(4, y - 6, f"engine {node}", "engine"))
            parts += self._row(row, y)
            y += _ROW
        self._height = y + 30
        return svg.drawing(
            _NAMES + _WIDTH + 40, self._height, "who held which blocks", [*parts, *self._times(y)]
        )

    def _row(self, row: Row, y: float) -> list[Markup]:
        style = "label wrong" if row.is_wrong else "label"
        name = block_list(row.blocks)
        shown = name if len(name) < 22 else name[:20] + "…"
        parts = [
            svg.tag("text", svg.tag("title", name), shown, x=_NAMES - 8, y=y + 14,
                    class_=style, text_anchor="end"),
            svg.line(_NAMES, y + _ROW / 2, _NAMES + _WIDTH, y + _ROW / 2, "lane"),
        ]  # fmt: skip
        for holding in row.holdings:
            parts += self._holding(holding, y, is_wrong=row.is_wrong)
        return parts

    def _holding(self, holding: Holding, y: float, *, is_wrong: bool) -> list[Markup]:
        low, high = self._axis.at(holding.from_ns), self._axis.at(holding.until_ns)
        who = ", ".join(holding.holders)
        title = (
            f"{who}: {ns_to_seconds(holding.from_ns):.6f} s "
            f"to {ns_to_seconds(holding.until_ns):.6f} s"
        )
        style = f"hold k{self._colours[holding.holders[0]]}" + (" wrong" if is_wrong else "")
        width = max(high - low, 1.5)
        parts = [svg.box(low, y + 2, width, _ROW - 4, style, title)]
        if len(who) * _LETTER < width - 4:
            parts.append(svg.text(low + 4, y + 14, who, "holder"))
        return parts

    def _times(self, y: float) -> list[Markup]:
        parts = []
        for x, told in self._axis.ticks(apart=78):
            parts.append(svg.line(x, 20, x, y + 4, "grid"))
            parts.append(svg.text(x, y + 18, told, "time", "middle"))
        if self._focus.violations:
            x = self._axis.at(self._focus.until_ns)
            parts.append(svg.line(x, 12, x, y + 4, "violation", "violation"))
            parts.append(svg.cross(x, 12, "violation"))
        return parts
