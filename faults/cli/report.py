"""``faultlab report``: a campaign, a run, or two campaigns as one HTML file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from faults import artifact
from faults.artifact import REPORT_FILE
from faults.cli.campaign_summary import Known, excused_groups
from faults.cli.outcome import JsonFlag, Outcome
from faults.cli.replay import require_complete
from faults.cli.run_summary import print_plain
from faults.cli.simulate import simulate
from faults.directories import SIDES, is_campaign, is_comparison, is_run, what_is
from faults.report import campaign_page, comparison_page, run_page, without_faults
from sim.errors import UsageError
from sim.kernel.log import Record

_COMPARISON = Path("comparison.html")


def command(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="The --out of a campaign, of a compare or of a run; or of two campaigns.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write; by default report.html there, or comparison.html."),
    ] = None,
    known: Known = None,
    against_fault_free: Annotated[
        bool,
        typer.Option(
            "--against-fault-free",
            help="Run a run's scenario without its faults, and draw what they cost.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json: JsonFlag = False,
) -> Outcome:
    """Write a campaign, a run or two campaigns as one HTML file, to be opened in any browser.

    The file needs no network. Of a campaign it has the counts, how often each fault reached each
    phase, the groups of failures with their scenarios, and drawings of runs that stand for them; of
    a run its story, who sent what to whom, and who held which blocks; of two campaigns what is new
    and what is fixed. Only --against-fault-free runs anything.

    \b
    Examples:
      faultlab report night
      faultlab report faultlab-runs/llama-moriio-seed0-3f2a9c01 --out held.html
      faultlab report runs/held --against-fault-free --out cost.html
      faultlab report night-moriio night-hybrid --out both.html

    Exit code 0: written, whatever the runs came to; 2: nothing of that kind there, or the file is
    in use.
    """
    page, default = _page(directories, known, against_fault_free)
    file = out or default
    if file.exists() and not force and _content(file) != page:
        raise UsageError(f"{file}: exists already; add --force to overwrite it, or name another")
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{file}: cannot be written: {error.strerror}; name a file that can be with --out"
        ) from error
    size = len(page.encode())
    return Outcome({"written": str(file), "bytes": size}, partial(_render, file, size))


def _content(file: Path) -> str | None:
    """What ``file`` holds, if that is text: a failing run has written its report already."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _page(
    directories: list[Path], known: Path | None, against_fault_free: bool
) -> tuple[str, Path]:
    """The page, and where it goes if nobody says."""
    if len(directories) > 2:
        raise UsageError(f"{len(directories)} directories were given; give one, or two campaigns")
    directory = directories[0]
    if against_fault_free:
        if len(directories) == 2 or known is not None:
            raise UsageError("--against-fault-free is about one run; give its directory alone")
        directory = artifact.find(directory)
        return run_page(directory, _fault_free(directory)), directory / REPORT_FILE
    if len(directories) == 1 and is_campaign(directory):
        return campaign_page(directory, excused_groups(known)), directory / REPORT_FILE
    if known is not None:
        raise UsageError(f"--known {known}: only the report of one campaign tells known groups")
    if len(directories) == 2:
        if all(map(is_run, directories)):
            both = shlex.join(map(str, directories))
            raise UsageError(
                f"{both}: are two recorded runs; compare them with faultlab diff {both}"
            )
        return comparison_page(*directories), _COMPARISON
    if is_comparison(directory):
        return comparison_page(*(directory / side for side in SIDES)), directory / REPORT_FILE
    if not directory.is_file() and not is_run(directory):
        raise UsageError(
            f"{directory}: {what_is(directory)}; expected the --out of a campaign, of a compare or "
            "of a run"
        )
    directory = artifact.find(directory)
    return run_page(directory), directory / REPORT_FILE


def _fault_free(directory: Path) -> Sequence[Record]:
    """The records of the run in ``directory`` without its faults, run here and now.

    Raises:
        UsageError: there is nothing to leave out, or other code would run than ran then.
    """
    scenario, recorded = artifact.read(directory)
    require_complete(directory, scenario, recorded)
    undisturbed = without_faults(scenario)
    if undisturbed == scenario:
        raise UsageError(
            f"{directory}: has no faults, and no request that is held, aborted or retried; leave "
            "--against-fault-free out"
        )
    result = simulate(undisturbed).result
    if result.guest_digest != recorded.guest_digest:
        raise UsageError(
            f"{directory}: the sources under test were others (digest {recorded.guest_digest}, "
            f"here {result.guest_digest}); leave --against-fault-free out, or install those"
        )
    return result.log.records


def _render(file: Path, size: int, console: Console) -> None:
    print_plain(console, f"written to {file} ({size / 1000:.0f} kB); open it in a browser")
