"""``faultlab merge``: the shards of a campaign into one summary."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from faults.campaign.junit import write_junit
from faults.campaign.merge import left_seeds, merge, write
from faults.campaign.result import summarize
from faults.cli.campaign_summary import Junit, Known, excused_groups, exit_code, render
from faults.cli.outcome import JsonFlag, Outcome


def command(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="The --out of every shard.")
    ],
    known: Known = None,
    junit: Junit = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the whole campaign here, as one shard would.")
    ] = None,
    json: JsonFlag = False,
) -> Outcome:
    """Put the shards of one campaign together, and say what they add up to.

    The summary is that of the campaign without --shard; its seconds are those of all runs together.
    What does not belong together is refused: other options, seeds or software, a shard twice, or
    one that is missing.

    \b
    Examples:
      faultlab merge shard-1 shard-2 shard-3
      faultlab merge shards/* --known known.yaml --junit night.xml --out night

    Exit codes are those of faultlab campaign; 3 also when a seed has no result, unless the --budget
    of its shard left it.
    """
    plan, results = merge(directories)
    left = left_seeds(directories)
    lost = set(plan.seeds).difference(left, (result.seed for result in results))
    excused = excused_groups(known)
    if out is not None:
        write(out, plan, results, left)
    document = summarize(
        results,
        excused,
        seeds=plan.seeds,
        wall_s=sum(result.wall_s for result in results),
        interrupted=False,
        lost=sorted(lost),
    )
    if junit is not None:
        write_junit(junit, results, excused, document["not_run"])
    return Outcome(
        document, partial(render, document, plan.options, is_merged=True), exit_code(document)
    )
