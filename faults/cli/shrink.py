"""``faultlab shrink``: the smallest scenario that fails like a recorded run."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from faults import artifact
from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from faults.cli.run_summary import print_plain, render_findings, render_saved, verdict_of
from faults.cli.shrink_campaign import shrink_campaign
from faults.cli.shrink_run import TEST_FILE, find_smaller, sizes_line
from faults.directories import is_campaign, smaller_place
from faults.plural import counted
from faults.wording import shrink_line
from sim.errors import UsageError
from sim.outcome import RunResult


def command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE_OR_DIR", help="The directory of a failing run, or of a campaign."
        ),
    ],
    max_runs: Annotated[
        int, typer.Option(min=1, help="Use at most so many runs, for each that is shrunk.")
    ] = 200,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it; next to the run if not given.")
    ] = None,
    json: JsonFlag = False,
) -> Outcome:
    """Look for the smallest scenario that fails in the same way.

    Faults, requests, lengths, engine.num_blocks, engines, options and times are reduced; the broken
    rules stay the same. The result is explained as by faultlab run, and written as an artifact
    with its report and a test_repro.py for a pytest suite.

    Of a campaign, the kept run of each group is shrunk, and stays in that group; its report shows
    the smaller scenarios. What was done before is left out, so that the same command goes on
    after Ctrl-C, with the run that it was at.

    \b
    Examples:
      faultlab shrink faultlab-runs/llama-moriio-seed0-3f2a9c01
      faultlab shrink night/failures/seed-17 --max-runs 50 --out small
      faultlab shrink night

    Exit code 0: written, of a campaign at least one run now or before; 2: bad usage, or the run did
    not fail, or does not fail here (of a campaign: none does, or none was kept); 130: Ctrl-C ended
    it (143: SIGTERM did), and the smallest of a run so far is written, to go on from.
    """
    if is_campaign(path):
        if out is not None:
            raise UsageError(
                f"--out {out}: is for one run, and {path} is the directory of a campaign; leave it "
                "out, and each run is written beside the one that was kept"
            )
        return shrink_campaign(path, max_runs)
    directory = artifact.find(path)
    target = out or smaller_place(directory)
    artifact.check_vacant(target, force=False)
    found = find_smaller(directory, max_runs, "shrinking")
    found.write(target, force=False)
    document = {**found.document, "directory": str(target)}
    code = ExitCode.INTERRUPTED if found.is_interrupted else ExitCode.OK
    return Outcome(document, partial(_render, document, found.result), code)


def _render(document: dict[str, Any], result: RunResult, console: Console) -> None:
    before, after = document["before"], document["after"]
    print_plain(console, f"{counted(document['runs'], 'run')}: {sizes_line(before, after)}")
    if document["stopped_at_limit"]:
        print_plain(
            console, f"stopped at the limit of {counted(document['runs'], 'run')} (--max-runs)"
        )
    if document["interrupted"]:
        again = shrink_line(Path(document["directory"]))
        print_plain(console, f"interrupted; to go on from here: {again}")
    console.print(verdict_of(result.outcome))
    render_findings(console, result)
    directory = Path(document["directory"])
    issue = shlex.join(["faultlab", "issue", str(directory)])
    for_others = [f"for pytest: {directory / TEST_FILE}", f"for a tracker: {issue}"]
    render_saved(console, directory, for_others)
