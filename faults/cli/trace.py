"""``faultlab trace``: a recorded run as a trace for Perfetto."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from faults import artifact
from faults.cli.outcome import JsonFlag, Outcome, RunPath
from faults.cli.run_summary import print_plain
from faults.trace import build
from sim.errors import UsageError
from sim.kernel.seed import Seed
from sim.pool import pool_of
from sim.scenario import Scenario, workload_of

TRACE_FILE = "trace.json"


def command(
    path: RunPath,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default trace.json beside the run.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json: JsonFlag = False,
) -> Outcome:
    """Write the trace of a recorded run, to be opened at ui.perfetto.dev or chrome://tracing.

    Lanes are the router, engines with their tasks and ranks, and network cards; arrows are messages
    and transfers; counters are blocks, requests and transfers in flight. Times are virtual.

    \b
    Examples:
      faultlab trace faultlab-runs/llama-moriio-seed0-3f2a9c01
      faultlab trace runs/held --out held.json --force

    Exit code 0: written; 2: no run there, or the file is in use.
    """
    directory = artifact.find(path)
    scenario, recorded = artifact.read(directory)
    file = out or directory / TRACE_FILE
    if file.exists() and not force:
        raise UsageError(f"{file}: exists already; add --force to overwrite it, or name another")
    about = {"event_hash": recorded.event_hash, **recorded.versions}
    trace = build(
        artifact.read_events(directory, recorded),
        num_blocks=_pool_size(scenario),
        about=about,
    )
    try:
        file.write_bytes(msgspec.json.encode(trace))
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    document = {"written": str(file), "events": len(trace.traceEvents)}
    return Outcome(document, partial(_render, file))


def _pool_size(scenario: Scenario) -> int | None:
    """Blocks of each rank's pool; None if the trace that it depends on cannot be read any more."""
    try:
        requests = workload_of(scenario, Seed(scenario.seed).stream("workload"))
        num_blocks, _ = pool_of(scenario, requests)
    except UsageError:
        return None
    return num_blocks


def _render(file: Path, console: Console) -> None:
    print_plain(console, f"written to {file}; open it at https://ui.perfetto.dev")
