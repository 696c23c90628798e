"""How long the requests of a run took, and how many tokens came out of it in a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from faults.report import svg
from faults.report.axis import LogAxis
from faults.wording import short_time
from sim.kernel.log import Record
from sim.request_ids import leg_kind
from sim.units import ns_to_seconds

_NAMES, _WIDTH, _ROW = 150, 760, 18
_MOST_ROWS = 40
_GOOD = ("length", "stop")


@dataclass(frozen=True)
class Request:
    """``prefilled_ns`` is when the last leg on a producer had ended, ``ended_ns`` when the client
    had its answer; None if that never was."""

    name: str
    arrived_ns: int
    prefilled_ns: int | None = None
    ended_ns: int | None = None
    outcome: str = "not ended"
    tokens: int = 0

    def lasted_ns(self, until_ns: int) -> int:
        """To its end, or until then."""
        return (until_ns if self.ended_ns is None else self.ended_ns) - self.arrived_ns

    @property
    def is_good(self) -> bool:
        return self.outcome in _GOOD


def requests_of(records: Sequence[Record]) -> list[Request]:
    """In order of arrival."""
    found: dict[str, Request] = {}
    for record in records:
        fields = record.fields
        if record.kind == "request-arrived":
            found[fields["request"]] = Request(fields["request"], record.time_ns)
            continue
        request = found.get(str(fields.get("request")))
        if request is None:
            continue
        if record.kind == "request-ended":
            found[request.name] = replace(
                request,
                ended_ns=record.time_ns,
                outcome=fields["outcome"],
                tokens=fields.get("tokens", 0),
            )
        elif record.kind == "leg-finished" and leg_kind(fields["leg"]) == "p":
            found[request.name] = replace(request, prefilled_ns=record.time_ns)
    return list(found.values())


def throughput(requests: Sequence[Request]) -> str:
    """In a sentence; empty if no request ended."""
    ended = [r for r in requests if r.ended_ns is not None]
    if not ended:
        return ""
    lasted = sorted(r.lasted_ns(0) for r in ended)
    tokens = sum(r.tokens for r in ended)
    span_ns = max(r.ended_ns or 0 for r in ended) - min(r.arrived_ns for r in requests)
    rate = f", {tokens / ns_to_seconds(span_ns):.4g} tokens/s" if span_ns else ""
    return (
        f"{len(ended)} of {len(requests)} requests ended, half of them within "
        f"{short_time(lasted[len(lasted) // 2])} and all within {short_time(lasted[-1])}; "
        f"{tokens} tokens{rate}"
    )


def latencies(requests: Sequence[Request], until_ns: int) -> Markup:
    """A bar for each request, the slowest if there are too many; empty if there is none."""
    slowest = sorted(requests, key=lambda r: -r.lasted_ns(until_ns))[:_MOST_ROWS]
    shown = [request for request in requests if request in slowest]
    if not shown:
        return Markup()
    axis = LogAxis([ns_to_seconds(r.lasted_ns(until_ns)) for r in shown], _NAMES, _WIDTH)
    bottom = _ROW * len(shown) + 6
    parts = [svg.line(x, 4, x, bottom, "grid") for x, _ in axis.ticks()]
    parts += [svg.text(x, bottom + 15, f"{t} s", "time", "middle") for x, t in axis.ticks()]
    parts.append(svg.text(_NAMES - 8, bottom + 15, "logarithmic:", "faint", "end"))
    for number, request in enumerate(shown):
        parts += _bar(request, until_ns, axis, 4 + _ROW * number)
    return svg.drawing(_NAMES + _WIDTH + 150, bottom + 22, "how long requests took", parts)


def _bar(request: Request, until_ns: int, axis: LogAxis, y: float) -> list[Markup]:
    lasted_ns = request.lasted_ns(until_ns)
    end = axis.at(ns_to_seconds(lasted_ns))
    style = "bar passed" if request.is_good else "bar failed"
    title = f"{request.name}: {request.outcome} after {short_time(lasted_ns)}"
    name = request.name if len(request.name) < 22 else request.name[:20] + "…"
    parts = [
        svg.text(_NAMES - 8, y + 12, name, "label", "end"),
        svg.box(_NAMES, y + 2, max(end - _NAMES, 1.5), _ROW - 5, style, title),
        svg.text(end + 6, y + 12, f"{request.outcome}, {short_time(lasted_ns)}", "faint"),
    ]
    if request.prefilled_ns is not None:
        x = axis.at(ns_to_seconds(request.prefilled_ns - request.arrived_ns))
        parts.append(svg.line(x, y + 1, x, y + _ROW - 2, "mark", "prefill has ended"))
    return parts
