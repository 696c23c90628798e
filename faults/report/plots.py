"""Plots of many runs. Each run is counted first; what is drawn has a fixed number of bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from faults.campaign.result import STATUSES, SeedResult, Status
from faults.report import svg
from faults.report.axis import LinearAxis, LogAxis

PLOT_LEFT, PLOT_WIDTH, _HEIGHT = 56, 760, 120
_MOST_BARS = 120
_PER_DECADE = 8
_STEPS = 200


def seeds_plot(results: Sequence[SeedResult]) -> Markup:
    """How runs ended along the seeds: a bar for each seed, or for as many as are needed."""
    ordered = sorted(results, key=lambda result: result.seed)
    bars = _slices(ordered)
    titles = [
        f"seeds {part[0].seed} to {part[-1].seed}" if len(part) > 1 else f"seed {part[0].seed}"
        for part in bars
    ]
    counted = [Counter(r.status for r in part) for part in bars]
    size = len(bars[0]) if bars else 1
    what = "a bar is one seed" if size == 1 else f"a bar is {size} seeds"
    ends = (f"seed {ordered[0].seed}", f"seed {ordered[-1].seed}") if ordered else ("", "")
    return _stacked(counted, titles, f"how runs ended along the seeds; {what}", ends)


def histogram(results: Sequence[SeedResult], field: str, label: str) -> Markup:
    """How many runs took how long: ``field`` is ``wall_s`` or ``virtual_s``."""
    values = [float(getattr(result, field)) for result in results]
    axis = LogAxis(values, 0, 1)
    bins = (axis.high - axis.low) * _PER_DECADE
    counted: list[Counter[Status]] = [Counter() for _ in range(bins)]
    for value, result in zip(values, results, strict=True):
        counted[min(int(axis.at(value) * bins), bins - 1)][result.status] += 1
    edges = [10 ** (axis.low + i / _PER_DECADE) for i in range(bins + 1)]
    titles = [f"{edges[i]:.3g} to {edges[i + 1]:.3g} s" for i in range(bins)]
    ticks = [(place, f"{told} s") for place, told in axis.ticks()]
    return _stacked(counted, titles, label, ticks=ticks)


def throughput(results: Sequence[SeedResult]) -> Markup:
    """Runs a minute of one worker, in the order in which the results came."""
    bars = _slices(results)
    rates = [60 * len(part) / (sum(r.wall_s for r in part) or 1.0) for part in bars]
    most = max(rates, default=1.0) or 1.0
    width = PLOT_WIDTH / max(len(rates), 1)
    parts = _frame(f"{most:.3g}", "runs a minute of a worker, in the order in which they ended")
    for i, rate in enumerate(rates):
        height = _HEIGHT * rate / most
        x, y = PLOT_LEFT + i * width, 20 + _HEIGHT - height
        parts.append(svg.box(x, y, _gapped(width), height, "bar plain", f"{rate:.3g} a minute"))
    return _drawing("runs a minute of a worker", parts)


def shares(sides: Sequence[tuple[str, Sequence[float]]], label: str) -> Markup:
    """The share of runs that took no longer than so many seconds, a line for each side."""
    axis = LogAxis([value for _, values in sides for value in values], PLOT_LEFT, PLOT_WIDTH)
    parts = _frame("100 %", label)
    parts += _ticks(axis.ticks(), " s")
    for number, (name, values) in enumerate(sides):
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in _curve(sorted(values), axis))
        parts.append(svg.tag("path", svg.tag("title", name), d=path, class_=f"curve side{number}"))
    return _drawing(label, parts)


def stairs(
    sides: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    axis: LogAxis | LinearAxis,
    top: tuple[float, str],
    label: str,
) -> Markup:
    """Sums that grow, a line for each side: from each (place, sum) on that is the sum.

    ``axis`` begins at ``PLOT_LEFT`` and is ``PLOT_WIDTH`` long, in seconds; ``top`` is the highest
    sum, and how it is written.
    """
    parts = _frame(top[1], label) + _ticks(axis.ticks(), " s")
    for number, (name, points) in enumerate(sides):
        path = f"M{PLOT_LEFT} {20 + _HEIGHT}"
        for place, height in points:
            path += f"H{axis.at(place):.1f}V{20 + _HEIGHT * (1 - height / (top[0] or 1.0)):.1f}"
        path += f"H{PLOT_LEFT + PLOT_WIDTH}"
        parts.append(svg.tag("path", svg.tag("title", name), d=path, class_=f"curve side{number}"))
    return _drawing(label, parts)


def _curve(values: Sequence[float], axis: LogAxis) -> Iterable[tuple[float, float]]:
    count = len(values)
    yield PLOT_LEFT, 20 + _HEIGHT
    for step in range(1, _STEPS + 1) if count else ():
        value = values[-(-count * step // _STEPS) - 1]
        yield axis.at(value), 20 + _HEIGHT * (1 - step / _STEPS)


def _slices(results: Sequence[SeedResult]) -> list[Sequence[SeedResult]]:
    size = -(-len(results) // _MOST_BARS) or 1
    return [results[i : i + size] for i in range(0, len(results), size)]


def _stacked(
    counted: Sequence[Counter[Status]],
    titles: Sequence[str],
    label: str,
    ends: tuple[str, str] = ("", ""),
    ticks: Sequence[tuple[float, str]] = (),
) -> Markup:
    most = max((sum(counts.values()) for counts in counted), default=1) or 1
    width = PLOT_WIDTH / max(len(counted), 1)
    parts = _frame(str(most), label)
    for i, (counts, title) in enumerate(zip(counted, titles, strict=True)):
        y = 20.0 + _HEIGHT
        for status in STATUSES:
            if counts[status]:
                height = _HEIGHT * counts[status] / most
                y -= height
                said = f"{title}: {counts[status]} {status}"
                x = PLOT_LEFT + i * width
                parts.append(svg.box(x, y, _gapped(width), height, f"bar {status}", said))
    parts.append(svg.text(PLOT_LEFT, _HEIGHT + 36, ends[0], "time"))
    parts.append(svg.text(PLOT_LEFT + PLOT_WIDTH, _HEIGHT + 36, ends[1], "time", "end"))
    parts += _ticks([(PLOT_LEFT + share * PLOT_WIDTH, told) for share, told in ticks], "")
    return _drawing(label, parts)


def _drawing(label: str, parts: Iterable[Markup]) -> Markup:
    return svg.drawing(PLOT_LEFT + PLOT_WIDTH + 30, _HEIGHT + 44, label, parts)


def _gapped(width: float) -> float:
    return width - 1 if width > 3 else width


def _frame(top: str, label: str) -> list[Markup]:
    bottom = 20 + _HEIGHT
    return [
        svg.text(PLOT_LEFT, 13, label, "label"),
        svg.text(PLOT_LEFT - 6, 28, top, "time", "end"),
        svg.text(PLOT_LEFT - 6, bottom, "0", "time", "end"),
        svg.line(PLOT_LEFT, bottom, PLOT_LEFT + PLOT_WIDTH, bottom, "lane"),
    ]


def _ticks(ticks: Iterable[tuple[float, str]], unit: str) -> list[Markup]:
    return [
        part
        for x, told in ticks
        for part in (
            svg.line(x, 20 + _HEIGHT, x, 24 + _HEIGHT, "lane"),
            svg.text(x, _HEIGHT + 36, told + unit, "time", "middle"),
        )
    ]
