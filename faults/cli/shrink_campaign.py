"""Shrinks the runs that a campaign has kept, one for each group of failures."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from faults import artifact
from faults.artifact import REPORT_FILE
from faults.cli.outcome import ExitCode, Outcome
from faults.cli.run_summary import print_plain
from faults.cli.shrink_run import find_smaller, sizes_line
from faults.directories import FAILURES, is_run, smaller_place
from faults.plural import counted
from faults.report.campaign_page import Campaign
from sim.errors import TestbedError, UsageError

_WORDS = {
    "shrunk": "shrunk now",
    "done-before": "done before",
    "not-shrunk": "could not be shrunk",
    "left": "left, as it was interrupted",
}
"""What has become of a run, as ``--json`` has it and for people."""


def shrink_campaign(directory: Path, max_runs: int) -> Outcome:
    """Shrink the kept runs of the campaign in ``directory``, each with at most ``max_runs`` runs.

    They are taken in the order in which the summary has the first of their groups. A run of which
    there is something smaller already is left out; one that cannot be shrunk ends no other. Of the
    run that Ctrl-C ended nothing is written, so that it is not taken for done.

    Raises:
        UsageError: there is no campaign, none of its runs failed, or none was kept.
    """
    groups = Campaign.read(directory).document["groups"]
    kept = _kept(directory, groups)
    runs: list[dict[str, Any]] = [
        {"groups": names, "run": str(run), "status": "left", "directory": None}
        for run, names in kept.items()
    ]
    is_interrupted = False
    try:
        for number, (run, entry) in enumerate(zip(kept, runs, strict=True), 1):
            entry |= _shrunk(run, entry["groups"], max_runs, f"run {number} of {len(kept)}")
    except KeyboardInterrupt:
        is_interrupted = True
    counts = Counter(entry["status"] for entry in runs)
    document = {
        "campaign": str(directory),
        "runs": runs,
        **{status.replace("-", "_"): counts[status] for status in _WORDS},
        "not_kept": [group["group"] for group in groups if group["artifact"] is None],
        "interrupted": is_interrupted,
    }
    has_any = counts["shrunk"] + counts["done-before"]
    code = ExitCode.OK if has_any else ExitCode.BAD_USAGE
    return Outcome(
        document, partial(_render, document), ExitCode.INTERRUPTED if is_interrupted else code
    )


def _kept(directory: Path, groups: Sequence[Mapping[str, Any]]) -> dict[Path, list[str]]:
    """The runs that stand for ``groups``, and which each stands for; UsageError if there is none.

    One run can stand for several groups.
    """
    if not groups:
        raise UsageError(
            f"{directory}: none of its runs failed, so there is nothing to shrink; try other seeds "
            "with faultlab campaign --seeds A:B"
        )
    kept: dict[Path, list[str]] = {}
    for group in groups:
        if group["artifact"] is not None:
            kept.setdefault(Path(group["artifact"]), []).append(group["group"])
    if not kept:
        raise UsageError(
            f"{directory / FAILURES}: has none of the runs that failed; copy it from where the "
            f"campaign ran, or run seed {groups[0]['smallest_seed']} again with another --out"
        )
    return kept


def _shrunk(directory: Path, groups: Sequence[str], max_runs: int, title: str) -> dict[str, Any]:
    """Shrink one run, and say what came of it."""
    target = smaller_place(directory)
    try:
        _, recorded = artifact.read(directory)
        if artifact.read_smaller(directory, recorded) is not None:
            return {"status": "done-before", "directory": str(target)}
        if is_run(target):
            raise UsageError(
                f"{target}: breaks other rules than {directory}, or was edited; move it away, and "
                "give the same command again"
            )
        artifact.check_vacant(target, force=True)
        found = find_smaller(directory, max_runs, title, groups)
        if found.is_interrupted:
            raise KeyboardInterrupt
        found.write(target, force=True)  # over what an interrupted one has left
    except (UsageError, TestbedError) as error:
        return {"status": "not-shrunk", "reason": str(error)}
    return {"status": "shrunk", **found.document, "directory": str(target)}


def _render(document: dict[str, Any], console: Console) -> None:
    runs = document["runs"]
    groups = sum(len(entry["groups"]) for entry in runs)
    states = [
        f"{count} {words}"
        for status, words in _WORDS.items()
        if (count := document[status.replace("-", "_")])
    ]
    of_groups = f"{counted(len(runs), 'kept run')} of {counted(groups, 'group')}"
    print_plain(console, f"{of_groups}: {', '.join(states)}")
    if document["not_kept"]:
        print_plain(console, f"without a kept run: {', '.join(document['not_kept'])}")
    for entry in runs:
        console.print()
        for group in entry["groups"]:
            console.print(Text(group, "bold red"), soft_wrap=True)
        print_plain(console, f"  {_line(entry)}")
    if document["interrupted"]:
        print_plain(console, "\ninterrupted; to go on, give the same command again")
    campaign = Path(document["campaign"])
    again = ["--force"] if (campaign / REPORT_FILE).exists() else []
    line = shlex.join(["faultlab", "report", str(campaign), *again])
    print_plain(console, f"\nin a browser: {line}")


def _line(entry: Mapping[str, Any]) -> str:
    match entry["status"]:
        case "shrunk":
            limit = ", the limit of --max-runs" if entry["stopped_at_limit"] else ""
            sizes = sizes_line(entry["before"], entry["after"])
            return f"{sizes} ({counted(entry['runs'], 'run')}{limit}): {entry['directory']}"
        case "done-before":
            return f"done before: {entry['directory']}"
        case "not-shrunk":
            return str(entry["reason"])
        case _:
            return f"left: {entry['run']}"
