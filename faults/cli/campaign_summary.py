"""What a campaign added up to, for people, and the options that excuse and report it."""

from __future__ import annotations

import datetime
import shlex
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from faults.campaign.command import kept_seed_line
from faults.campaign.known import load_known
from faults.campaign.result import MEANINGS, tested_nothing
from faults.campaign.swarm import SwarmOptions
from faults.campaign.vllm_defects import VLLM_DEFECTS
from faults.cli.coverage_table import print_coverage
from faults.cli.outcome import ExitCode
from faults.cli.run_summary import print_plain, render_kept_story
from faults.plural import counted
from faults.story import rank_of
from faults.wording import for_people, replay_line, shrink_line

_SHOWN, _REASONS_SHOWN = 10, 3

Known = Annotated[
    Path | None, typer.Option(help="Groups that are known defects (group, owner, link, expires).")
]
Junit = Annotated[Path | None, typer.Option(help="Write JUnit XML here.")]


def excused_groups(path: Path | None) -> list[str]:
    """Those that are vLLM's own, and those that the file of --known excuses today."""
    if path is None:
        return list(VLLM_DEFECTS)
    today = datetime.date.today()
    listed = [defect.group for defect in load_known(path) if defect.excuses_on(today)]
    return [*VLLM_DEFECTS, *listed]


def exit_code(document: dict[str, Any]) -> int:
    """Of what failed, only new groups count; then whether all was run, and the testbed failed."""
    if document["new_groups"]:
        return ExitCode.VIOLATION
    if document["interrupted"]:
        return ExitCode.INTERRUPTED
    if document["errors"] or document["lost_seeds"]:
        return ExitCode.TESTBED_FAILED
    if tested_nothing(document):
        return ExitCode.BAD_USAGE
    return ExitCode.OK


def render(
    document: dict[str, Any],
    options: SwarmOptions,
    console: Console,
    *,
    out: Path | None = None,
    is_merged: bool = False,
) -> None:
    """For people; if a group is new, its story and the line that replays it come last. ``options``
    and ``out`` are those of the campaign; ``is_merged``: it was put together from shards."""
    print_plain(
        console,
        f"{counted(document['runs'], 'run')}{_how_long(document, is_merged=is_merged)}: "
        f"{document['passed']} passed, "
        f"{document['failed']} failed, {document['refused']} refused, "
        f"{document['failed_closed']} failed closed, "
        f"{counted(document['errors'], 'error')}"
        + (" (interrupted)" if document["interrupted"] else ""),
    )
    lost = document["lost_seeds"]
    left = document["not_run"] - len(lost)
    if left:
        why = "it was interrupted" if document["interrupted"] else "the time of --budget was over"
        print_plain(console, f"not run: {counted(left, 'seed')}, as {why}{how_to_go_on(out)}")
    if lost:
        shown = ", ".join(map(str, lost[:_SHOWN])) + (", ..." if len(lost) > _SHOWN else "")
        print_plain(
            console,
            f"without a result, and no --budget says why: {counted(len(lost), 'seed')}: {shown}; "
            "go on with --resume where they were to run",
        )
    _render_unserved(document, console)
    for error in document["error_seeds"]:
        print_plain(console, f"error in seed {error['seed']}: {error['detail']}")
    for group in document["groups"]:
        known = ", known" if group["known"] else ""
        if group["group"] in VLLM_DEFECTS:
            known = f", vLLM's own: {VLLM_DEFECTS[group['group']]}"
        runs = counted(group["seeds"], "run")
        console.print(f"\n[bold red]{group['group']}[/] ({runs}{known})")
        print_plain(console, f"  {for_people(group['detail'])}")
        print_plain(console, f"  first seed {group['smallest_seed']}: {_again(group, options)}")
    if document["runs"] and not tested_nothing(document):
        _render_coverage(document, console)
    _render_reads(document, console)
    kept = [group["artifact"] for group in document["groups"] if group["artifact"] is not None]
    new = [group for group in document["groups"] if not group["known"]]
    if kept and not is_merged:  # the shards of a merge have a directory each
        campaign = Path(kept[0]).parent.parent
        print_plain(console, f"\nin a browser: faultlab report {shlex.quote(str(campaign))}")
        if new:
            print_plain(console, f"smaller, all of them: {shrink_line(campaign)}")
    if new:
        first = min(new, key=lambda group: rank_of(group["group"].partition("/")[0]))
        render_first(console, first, f"to see {first['group']} come about", _again(first, options))


def _how_long(document: dict[str, Any], *, is_merged: bool) -> str:
    """What the seconds are about: a campaign that went on has results from before."""
    lasted = f"{document['wall_s']:.1f} s"
    if is_merged:
        return f" that took {lasted} one after another"
    if not document["runs_earlier"]:
        return f" in {lasted}"
    now = document["runs"] - document["runs_earlier"]
    return f", {now or 'none'} of them now in {lasted}"


def render_first(console: Console, group: dict[str, Any], title: str, again: str) -> None:
    """What ends a summary: the sentence of ``group``, the story of its run if that was kept, and
    under ``title`` the command line that shows more of it."""
    console.print(f"\n[bold red]{group['group']}[/]")
    print_plain(console, f"  {for_people(group['detail'])}")
    render_kept_story(console, group["artifact"])
    print_plain(console, f"\n{title}:\n{again}")


def how_to_go_on(out: Path | None) -> str:
    """After what was not run; results are kept in ``out`` only."""
    if out is None:
        return ""
    return "; to go on, give the same command again with --resume"


def _again(group: dict[str, Any], options: SwarmOptions) -> str:
    """The command line that replays a run of the group."""
    if group["artifact"] is not None:
        return replay_line(Path(group["artifact"]))
    return kept_seed_line(options, group["smallest_seed"])


def _render_unserved(document: dict[str, Any], console: Console) -> None:
    for status, meaning in MEANINGS.items():
        entries = [entry for entry in document["unserved"] if entry["status"] == status]
        if entries:
            print_plain(console, f"\n{status.replace('-', ' ')}: {meaning}")
        for entry in entries[:_REASONS_SHOWN]:
            print_plain(console, f"  {entry['seeds']} ×, as seed {entry['smallest_seed']}:")
            print_plain(console, f"    {for_people(entry['detail'])}")
        if len(entries) > _REASONS_SHOWN:
            more = counted(len(entries) - _REASONS_SHOWN, "reason")
            print_plain(console, f"  and {more} more (--json)")
    if tested_nothing(document):
        print_plain(console, "\nnothing was tested: every seed was refused")


def _render_coverage(document: dict[str, Any], console: Console) -> None:
    coverage = document["fault_coverage"]
    cells = sum(len(row) for row in coverage.values())
    if cells:
        print_plain(
            console,
            f"\ncoverage: {cells - len(document['holes'])} of {cells} possible pairs of fault and "
            "phase were hit",
        )
        print_coverage(console, coverage)


def _render_reads(document: dict[str, Any], console: Console) -> None:
    """How much was tried while reads ran, and what may be concluded if nothing came of it."""
    reads = document["reads_under_fault"]
    if reads:
        each = ", ".join(f"{kind} {count}" for kind, count in reads.items())
        print_plain(console, f"\nreads posted or in flight under each fault: {each}")
    below = document["failing_share_below"]
    if below is not None:
        known = " but in known groups" if document["failed"] else ""
        print_plain(
            console,
            f"no run failed{known}: with 95 % confidence less than {_bound(100 * below)} % of such "
            "seeds do (3/n)",
        )


def _bound(percent: float) -> str:
    """Two digits, rounded up: a bound that is rounded down is none."""
    rounded = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(percent)
    return f"{float(rounded):g}"
