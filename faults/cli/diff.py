"""``faultlab diff``: two recorded runs side by side."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from faults import differences
from faults.cli.outcome import JsonFlag, Outcome
from faults.cli.run_summary import print_plain, render_moments
from faults.differences import Side
from faults.plural import counted
from faults.wording import what_runs
from sim.scenario.workloads import EPILOGUE
from sim.units import ns_to_seconds

_SHOWN = 8
_NOT_COMPARED = (
    "The connectors are not the same, so only what engines, router and faults did is compared: "
    "messages, transfers and what went on inside the connectors are not. Times always differ, so "
    "each engine's history is compared without them."
)


def command(
    a: Annotated[Path, typer.Argument(metavar="A", help="The directory of a run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The directory of another.")],
    json: JsonFlag = False,
) -> Outcome:
    """Show where two recorded runs part: with other seeds, connectors, options or versions.

    Runs are recorded with faultlab run --out DIR. Of different connectors only what engines,
    router and faults did is compared. Outputs are, where both were asked the same. Where a run
    broke no rule, its story is about the requests of the other's. Of runs of other scenarios it
    says what differs, and compares histories if they have requests in common.

    \b
    Examples:
      faultlab diff runs/moriio runs/hybrid
      faultlab diff runs/seed-1 runs/seed-2 --json

    Exit code 0: compared, whether they differ or not; 2: no run there, or it was edited.
    """
    sides = Side.read(a), Side.read(b)
    document = _document(*sides)
    return Outcome(document, partial(_render, sides=sides, document=document))


def _document(a: Side, b: Side) -> dict[str, Any]:
    stories = differences.stories(a, b)
    is_comparable = differences.are_comparable(a, b)
    ends = differences.ends(a, b) if is_comparable else {}
    return {
        "same": a.artifact.event_hash == b.artifact.event_hash,
        "apart": differences.apart(a, b),
        "given": differences.given(a, b),
        "comparable": is_comparable,
        "compares_everything": differences.is_all_compared(a, b),
        "times_part_s": differences.times_part(a, b) if is_comparable else None,
        "parting": msgspec.to_builtins(differences.parting(a, b)) if is_comparable else None,
        "ends": {name: list(pair) for name, pair in ends.items()},
        "outputs": {
            name: {"token": place, "a": one, "b": other}
            for name, (place, one, other) in differences.outputs(a, b).items()
        },
        **{
            name: {
                "directory": str(side.directory),
                "verdict": side.artifact.verdict,
                "signature": side.artifact.signature,
                "event_hash": side.artifact.event_hash,
                "story": [
                    {"time_s": ns_to_seconds(moment.time_ns), "text": moment.text}
                    for moment in story
                ],
            }
            for name, side, story in zip("ab", (a, b), stories, strict=True)
        },
    }


def _render(console: Console, sides: tuple[Side, Side], document: dict[str, Any]) -> None:
    for name, side in zip("AB", sides, strict=True):
        found = ", ".join(side.artifact.signature) or side.artifact.verdict
        print_plain(console, f"{name}  {side.directory}: {found}, {side.artifact.event_hash}")
    if document["same"]:
        print_plain(console, "\nthe same history, to the order of tasks")
        return
    if document["apart"]:
        _render_apart(console, document, sides)
    else:
        _list(console, "given", document["given"])
    if document["comparable"]:
        _render_histories(console, document)
    for name, story in zip("AB", differences.stories(*sides), strict=True):
        if story:
            console.print(f"\n[bold]how it came about in {name}[/]")
            render_moments(console, story)


def _render_apart(console: Console, document: dict[str, Any], sides: tuple[Side, Side]) -> None:
    apart = document["apart"]
    differ = f"{', '.join(apart)} {'differs' if len(apart) == 1 else 'differ'}"
    print_plain(console, f"\nthese are not two runs of one scenario: {differ}")
    for name, side in zip("AB", sides, strict=True):
        print_plain(console, f"  {name}: {what_runs(side.scenario)}, {_workload(side)}")
    others = [line for line in document["given"] if re.split("[.:]", line)[0] not in apart]
    if not document["comparable"]:
        print_plain(console, "  no request is in both, so their histories are not compared")
    _list(console, "given otherwise", _first(others))


def _workload(side: Side) -> str:
    names = [r.fields["request"] for r in side.records if r.kind == "request-arrived"]
    own = [name for name in names if not name.startswith(EPILOGUE)]
    ends = f" ({own[0]} to {own[-1]})" if len(own) > 1 else ""
    return f"{counted(len(own), 'request')}{ends}"


def _render_histories(console: Console, document: dict[str, Any]) -> None:
    if not document["compares_everything"]:
        print_plain(console, f"\n{_NOT_COMPARED}")
    _list(console, "first difference", _parting(document))
    ended = [f"{name}: {one} and {other}" for name, (one, other) in document["ends"].items()]
    _list(console, "how requests ended", _first(ended))
    outputs = [
        f"{name}: output token {at['token']} is {at['a']} and {at['b']}"
        for name, at in document["outputs"].items()
    ]
    _list(console, "outputs that differ", _first(outputs))


def _parting(document: dict[str, Any]) -> list[str]:
    times, parting = document["times_part_s"], document["parting"]
    earlier = [] if times is None else [f"times alone differ earlier, from {times:.6f} s on"]
    if parting is None:
        none = "none in what is compared; the order of tasks differs, or what connectors did"
        return [none, *earlier]
    before = [f"after {parting['before']}"] if parting["before"] else []
    return [*before, f"A: {parting['a']}", f"B: {parting['b']}", *earlier]


def _first(lines: list[str]) -> list[str]:
    """Some, and how many more there are."""
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]


def _list(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(f"\n[bold]{title}[/]")
        for line in lines:
            console.print(Padding(Text(line, overflow="fold"), (0, 0, 0, 2)))
