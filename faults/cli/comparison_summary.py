"""What a comparison came to, for people, and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from faults.campaign.compare import NOT_SERVED
from faults.campaign.result import MEANINGS
from faults.cli.campaign_summary import how_to_go_on, render_first
from faults.cli.outcome import ExitCode
from faults.cli.run_summary import print_plain
from faults.directories import SIDES
from faults.plural import counted
from faults.story import rank_of
from faults.wording import for_people

_TITLES = {"new": "bold red", "fixed": "bold green", "unchanged": "bold", "unjudged": "bold"}
_REASONS_SHOWN = 3
_UNSERVED = {
    ("start-refused", "new"): "passed before, and are refused now",
    ("start-refused", "fixed"): "were refused before, and pass now",
    ("failed-closed", "new"): "passed before, and end a step now",
    ("failed-closed", "fixed"): "ended a step before, and pass now",
}
"""By group and title, what is said of its seeds."""


def exit_code(document: dict[str, Any]) -> int:
    """A new group that nobody excuses comes first; then whether all ran, and tested anything."""
    if _counting(document):
        return ExitCode.VIOLATION
    if document["interrupted"]:
        return ExitCode.INTERRUPTED
    if document["errors"]:
        return ExitCode.TESTBED_FAILED
    return ExitCode.BAD_USAGE if _tested_nothing(document) else ExitCode.OK


def render(document: dict[str, Any], out: Path | None, console: Console) -> None:
    """For people; if something is new, the last line is the command that shows it."""
    titles = [title for title in _TITLES if document[title] or title != "unjudged"]
    counts = ", ".join(f"{len(document[title])} {title}" for title in titles)
    ended = " (interrupted)" if document["interrupted"] else ""
    print_plain(
        console, f"{counted(document['compared'], 'seed')} compared{ended}; groups: {counts}"
    )
    if document["not_run"]:
        left = counted(document["not_run"], "seed")
        print_plain(console, f"not run on both sides: {left}{how_to_go_on(out)}")
    for error in document["errors"]:
        print_plain(console, f"error in seed {error['seed']} {error['side']}: {error['detail']}")
    for title in _TITLES:
        for entry in document[title]:
            _render_entry(document, title, entry, console)
    passed = " and ".join(f"{document['passed'][side]} {side}" for side in SIDES)
    print_plain(console, f"\npassed of {counted(document['seeds'], 'seed')}: {passed}")
    _render_not_served(document, console)
    if out is not None:
        print_plain(console, f"written to {out}")
        print_plain(console, f"in a browser: faultlab report {shlex.quote(str(out))}")
    elif any(_has_failed(entry) for title in _TITLES for entry in document[title]):
        print_plain(console, "to keep and replay them: --out DIR")
    if counting := _counting(document):
        first = min(counting, key=lambda entry: rank_of(entry["group"].partition("/")[0]))
        render_first(console, first, f"to see {first['group']}, which is new", first["run_again"])


def _counting(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in document["new"] if entry["group"] not in document["known"]]


def _has_failed(entry: dict[str, Any]) -> bool:
    """Whether runs of it are kept, which those that were not served are not."""
    return entry["group"] not in NOT_SERVED.values()


def _tested_nothing(document: dict[str, Any]) -> bool:
    compared: int = document["compared"]
    return bool(compared) and document["not_served"]["after"]["refused"] == compared


def _render_entry(
    document: dict[str, Any], title: str, entry: dict[str, Any], console: Console
) -> None:
    excused = " (known)" if title == "new" and entry["group"] in document["known"] else ""
    console.print(f"\n[{_TITLES[title]}]{title}: {entry['group']}{excused}[/]")
    for line in _told(title, entry):
        print_plain(console, f"  {line}")
    before, after = (_seeds(entry[f"seeds_{side}"]) for side in SIDES)
    gone = entry["not_served_after"]
    not_served = f" (not served any more: {_seeds(gone)})" if gone else ""
    print_plain(console, f"  seeds before: {before}; after: {after}{not_served}")
    if title == "new" or entry["artifact"] is not None:
        print_plain(console, f"  first seed {entry['smallest_seed']}: {entry['run_again']}")


def _told(title: str, entry: dict[str, Any]) -> Iterator[str]:
    said = _UNSERVED.get((entry["group"], title))
    if said is None:
        yield for_people(entry["detail"])
        return
    yield f"seeds that {said}:"
    for reason in entry["reasons"][:_REASONS_SHOWN]:
        said_so = f"as seed {reason['smallest_seed']}: {for_people(reason['detail'])}"
        yield f"  {reason['seeds']} ×, {said_so}"
    if (more := len(entry["reasons"]) - _REASONS_SHOWN) > 0:
        yield f"  and {counted(more, 'reason')} more (--json)"


def _render_not_served(document: dict[str, Any], console: Console) -> None:
    """How many seeds say little, because a side did not serve them."""
    sides = document["not_served"]
    for status in MEANINGS:
        if any(sides[side][status] for side in SIDES):
            told = " and ".join(f"{sides[side][status]} {side}" for side in SIDES)
            print_plain(console, f"{status.replace('-', ' ')}: {told} ({MEANINGS[status]})")
    if _tested_nothing(document):
        print_plain(console, "nothing was tested: every seed is refused after")


def _seeds(seeds: list[int], shown: int = 5) -> str:
    listed = ", ".join(map(str, seeds[:shown])) or "none"
    return listed if len(seeds) <= shown else f"{listed} and {len(seeds) - shown} more"
