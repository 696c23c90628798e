"""``faultlab bench``: the speed table on the fixed scenarios."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from faults.bench.render import render
from faults.bench.scenarios import OF_TRACE, SECTIONS, TRACE, TRACE_HOUR
from faults.cli.loading import loading
from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from sim.errors import UsageError
from sim.hints import nearest

if TYPE_CHECKING:
    from faults.bench.guard import Verdict

_TRACE_FILE = "mooncake_fast25_conversation_trace.jsonl"

Sections = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SECTION]...", help=f"Which of: {', '.join(SECTIONS)}. Default: all but the last."
    ),
]
Runs = Annotated[int, typer.Option(min=1, help="Runs of the standard scenario.")]
Events = Annotated[int, typer.Option(min=100, help="Events of the kernel section.")]
Full = Annotated[bool, typer.Option("--full", help="Growth up to 10,000 requests; minutes.")]
Trace = Annotated[
    Path | None,
    typer.Option(
        help=f"A Mooncake trace for the sections of traces; default: {_TRACE_FILE} in "
        "$FAULTLAB_TRACES."
    ),
]
TraceRequests = Annotated[
    int | None, typer.Option(min=1, help=f"Only so many of the first requests in {TRACE_HOUR}.")
]
Guard = Annotated[
    bool, typer.Option("--guard", help="Instead, compare with recorded ratios; fail on a loss.")
]
Against = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="With --guard: compare with the version checked out there, in turns on this machine, "
        "and not with recorded ratios.",
    ),
]
RecordGuard = Annotated[
    bool,
    typer.Option(
        "--record-guard", help="Instead, record the ratios that --guard takes on such a processor."
    ),
]


def command(
    sections: Sections = None,
    runs: Runs = 20,
    events: Events = 200_000,
    full: Full = False,
    trace: Trace = None,
    trace_requests: TraceRequests = None,
    guard: Guard = False,
    against: Against = None,
    record_guard: RecordGuard = False,
    json: JsonFlag = False,
) -> Outcome:
    """Measure how fast the testbed is, on fixed scenarios.

    Rates are per second of processor time of one core. Compare figures of the same machine only,
    and of a quiet one.

    \b
    Examples:
      faultlab bench
      faultlab bench standard-fault-free kernel --json
      faultlab bench compare
      faultlab bench growth --full
      faultlab bench trace-100 --trace conversation.jsonl
      faultlab bench --guard
      faultlab bench --guard --against ../before

    Exit code of --guard: 1 if some scenario has become slower, or needs more memory, by more than a
    fifth; 2 if there is nothing to compare with, as on a processor without recorded ratios.
    """
    if against is not None and (record_guard or not guard):
        raise UsageError(f"--against {against}: goes with --guard alone; add it, without another")
    if (guard or record_guard) and sections:
        raise UsageError(f"{sections[0]}: --guard has scenarios of its own; leave sections out")
    if against is not None:
        return _guarded_against(against)
    if guard or record_guard:
        return _guarded(record=record_guard)
    trace = trace or _trace_of_environment()
    names = _chosen(sections or [], has_trace=trace is not None)
    with loading():
        from faults.bench.table import Effort, measured, where_and_when  # noqa: PLC0415

    growth = (100, 1_000, 10_000) if full else (100, 1_000)
    effort = Effort(
        runs=runs, events=events, growth=growth, trace=trace, trace_requests=trace_requests
    )
    document = {
        "machine": where_and_when(),
        "sections": {name: measured(name, effort) for name in _with_progress(names)},
        "left_out": _left_out(sections or [], names),
    }
    return Outcome(document, partial(render, document))


def _guarded(*, record: bool) -> Outcome:
    with loading():
        from faults.bench import guard  # noqa: PLC0415
        from faults.bench.render import render_guard  # noqa: PLC0415

    recorded = None if record else guard.read(guard.RECORDED, guard.NAMES)
    works, unchanging = guard.guarded(), guard.unchanging_work()
    if recorded is None:
        recorded = guard.measure(works, unchanging)
        guard.write(guard.RECORDED, recorded)
        kept: dict[str, Any] = {
            "recorded": recorded.ratios,
            "recorded_mib": recorded.memory_mib,
            "file": str(guard.RECORDED),
        }
        return Outcome(kept, partial(render_guard, kept))
    return _judged(
        {},
        list(guard.compare(works, unchanging, recorded)),
        list(guard.compare_memory(works, recorded)),
    )


def _guarded_against(directory: Path) -> Outcome:
    with loading():
        from faults.bench.against import HERE, Checkout, compare, compare_memory  # noqa: PLC0415

    if directory.resolve() == HERE:
        raise UsageError(f"--against {directory}: is this version itself; give another's checkout")
    with Checkout(directory) as there, Checkout(HERE) as here:
        return _judged(
            {"against": str(directory)},
            list(compare(here, there)),
            list(compare_memory(here, there)),
        )


def _judged(about: dict[str, str], speed: list[Verdict], memory: list[Verdict]) -> Outcome:
    """What the guard says, with the exit code that follows."""
    from faults.bench.guard import MOST_LOSS  # noqa: PLC0415
    from faults.bench.render import render_guard  # noqa: PLC0415

    document: dict[str, Any] = {**about, "most_loss": MOST_LOSS}
    for part, found in (("scenarios", speed), ("memory_mib", memory)):
        document[part] = [
            {"name": v.name, "recorded": v.recorded, "measured": v.measured, "loss": v.loss}
            for v in found
        ]
    passed = all(verdict.passed for verdict in (*speed, *memory))
    code = ExitCode.OK if passed else ExitCode.VIOLATION
    return Outcome(document, partial(render_guard, document), code)


def _trace_of_environment() -> Path | None:
    directory = os.environ.get("FAULTLAB_TRACES")
    return None if directory is None else Path(directory) / _TRACE_FILE


def _chosen(given: list[str], *, has_trace: bool) -> list[str]:
    for name in given:
        if name not in SECTIONS:
            hint = nearest(name, SECTIONS)
            raise UsageError(f"{name}: no such section{hint}; there are: {', '.join(SECTIONS)}")
    for name in OF_TRACE:
        if name in given and not has_trace:
            raise UsageError(f"{name}: needs a trace; give --trace, or set FAULTLAB_TRACES")
    if given:
        return [name for name in SECTIONS if name in given]
    return [name for name in SECTIONS if name not in OF_TRACE or (name == TRACE and has_trace)]


def _left_out(given: list[str], names: list[str]) -> dict[str, str]:
    """Which sections of the table are missing though nobody chose others, and why."""
    if given:
        return {}
    no_trace = f"no trace: give --trace, or set FAULTLAB_TRACES to where {_TRACE_FILE} is"
    reasons = {TRACE: no_trace, TRACE_HOUR: "it takes about an hour; name it to run it"}
    return {name: reason for name, reason in reasons.items() if name not in names}


def _with_progress(names: list[str]) -> Iterable[str]:
    return _shown(names) if sys.stderr.isatty() else names


def _shown(names: list[str]) -> Iterator[str]:
    """The names, with a bar for people; it moves between sections, so it disturbs none."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        bar = progress.add_task("", total=len(names))
        for number, name in enumerate(names):
            progress.update(bar, description=f"measuring {name}", completed=number, refresh=True)
            yield name
