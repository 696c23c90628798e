"""The space-time diagram of a run: lanes side by side, time downwards, a row for each happening.

Rows are in order of time and not to scale; a long gap has a row that says how long it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from markupsafe import Markup

from faults.report import svg
from faults.report.focus import Focus
from faults.report.happenings import Happening, happenings
from faults.report.lanes import Lane, in_order
from faults.wording import short_time
from sim.kernel.log import Record
from sim.units import MS, ns_to_seconds

_TIME, _LANE, _ROW, _HEAD = 92, 74, 19, 44
_LINE, _MAX_LINES = 74, 3  # letters, and lines of one sentence
# Room for them in a wide font (DejaVu Sans), so that two engines fit into a page of 1,280 pixels.
_WORDS = 7.7 * _LINE
_GAP_NS = 100 * MS


@dataclass
class _Row:
    """``happening`` is None where there is nothing but a gap; ``is_more`` says that the row goes
    on with the sentence of the one before."""

    time_ns: int
    happening: Happening | None
    text: str
    is_end: bool = False
    is_more: bool = False


def space_time(records: Sequence[Record], focus: Focus) -> tuple[Markup, int]:
    """The diagram, and how many happenings did not fit into it."""
    shown, left_out = happenings(records, focus)
    lanes = in_order([h.lane for h in shown] + [h.to for h in shown if h.to], list(focus.nodes))
    return _Picture(lanes, _rows(shown)).draw(), left_out


def _rows(shown: Sequence[Happening]) -> list[_Row]:
    rows = [_Row(h.time_ns, h, h.text) for h in shown]
    for happening in shown:
        end_ns = happening.end_ns
        if happening.to is not None and end_ns is not None and end_ns > happening.time_ns:
            rows.append(_Row(end_ns, happening, happening.end_text, is_end=True))
    rows.sort(key=lambda row: row.time_ns)
    with_gaps: list[_Row] = []
    for row in rows:
        gap_ns = row.time_ns - with_gaps[-1].time_ns if with_gaps else 0
        if gap_ns > _GAP_NS:
            with_gaps.append(_Row(row.time_ns, None, f"{short_time(gap_ns)} pass"))
        with_gaps += _in_lines(row)
    return with_gaps


def _in_lines(row: _Row) -> list[_Row]:
    """A row for each line of its sentence, of which the first has the mark."""
    first, *more = wrap(row.text, _LINE, max_lines=_MAX_LINES, placeholder=" …") or [""]
    return [replace(row, text=first), *(replace(row, text=line, is_more=True) for line in more)]


class _Picture:
    def __init__(self, lanes: Sequence[Lane], rows: Sequence[_Row]) -> None:
        self._lanes, self._rows = lanes, rows
        self._places = {lane: _TIME + _LANE * (i + 0.5) for i, lane in enumerate(lanes)}
        self._words = _TIME + _LANE * len(lanes) + 8
        self._height = _HEAD + _ROW * len(rows) + 10

    def draw(self) -> Markup:
        parts = [*self._heads(), *self._row_lines(), *self._marks()]
        width = self._words + _WORDS
        return svg.drawing(width, self._height, "space-time diagram of the run", parts)

    def _heads(self) -> list[Markup]:
        parts = []
        engines = list(dict.fromkeys(lane.engine for lane in self._lanes))
        for number, engine in enumerate(engines):
            places = [self._places[lane] for lane in self._lanes if lane.engine == engine]
            low, high = min(places) - _LANE / 2 + 2, max(places) + _LANE / 2 - 2
            band = "band" if engine and number % 2 else "band plain"
            parts.append(svg.box(low, 0, high - low, self._height, band))
            parts.append(svg.text((low + high) / 2, 16, engine, "engine", "middle"))
        for lane, x in self._places.items():
            parts.append(svg.text(x, 34, lane.name, "lane", "middle"))
            parts.append(svg.line(x, _HEAD - 4, x, self._height, "lane"))
        return parts

    def _y(self, row: int) -> float:
        return _HEAD + _ROW * (row + 0.5)

    def _row_lines(self) -> list[Markup]:
        parts = []
        before = -1
        for number, row in enumerate(self._rows):
            y = self._y(number)
            if row.happening is None:
                parts.append(svg.line(0, y, self._words - 8, y, "gap"))
                parts.append(svg.text(self._words, y + 4, row.text, "faint"))
                continue
            if row.time_ns != before:
                time = f"{ns_to_seconds(row.time_ns):.6f} s"
                parts.append(svg.text(_TIME - 8, y + 4, time, "time", "end"))
            before = row.time_ns
            parts.append(self._sentence(row, y))
        return parts

    def _sentence(self, row: _Row, y: float) -> Markup:
        assert row.happening is not None
        shown = row.text
        style = row.happening.style
        if row.is_end and not shown:
            shown, style = "arrives", "faint"
        return svg.text(self._words, y + 4, shown, f"words {style}")

    def _marks(self) -> list[Markup]:
        ends = {
            id(row.happening): i
            for i, row in enumerate(self._rows)
            if row.is_end and not row.is_more
        }
        parts = []
        for number, row in enumerate(self._rows):
            happening = row.happening
            if happening is not None and not row.is_end and not row.is_more:
                parts += self._mark(happening, self._y(number), ends.get(id(happening)))
        return parts

    def _mark(self, happening: Happening, y: float, end: int | None) -> list[Markup]:
        x, style = self._places[happening.lane], happening.style
        if happening.to is None:
            if style == "violation":
                return [svg.cross(x, y, "violation")]
            return [svg.dot(x, y, f"dot {style}", happening.text)]
        x2 = self._places[happening.to]
        if happening.end_ns is None:  # it never arrived
            middle = (x + x2) / 2
            way = svg.line(x, y, middle, y + _ROW / 3, f"arrow {style} lost", happening.text)
            return [way, svg.cross(middle, y + _ROW / 3, "lost")]
        y2 = y if end is None else self._y(end)
        return [svg.arrow(x, y, x2, y2, f"arrow {style}", happening.text)]
