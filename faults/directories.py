"""What faultlab has left in a directory, for whoever gives it to a command that is for another."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sim.hints import closest

ARTIFACT_FILE: Final = "artifact.json"
"""What makes a directory that of a run."""
PLAN_FILE: Final = "campaign.json"
"""What makes a directory that of a campaign."""
DEFAULT_PARENT: Final = "faultlab-runs"
"""Where runs go that fail without --out."""
FAILURES: Final = "failures"
SIDES: Final = ("before", "after")
"""The campaigns of a comparison."""


def what_is(path: Path) -> str:
    """What ``path`` is, and which commands take it, as the rest of a sentence."""
    if not path.is_dir():
        return "is a file" if path.exists() else f"does not exist{_meant(path)}"
    if is_run(path):
        return "is the directory of a run, which replay, report, diff, issue, shrink and trace take"
    if is_campaign(path):
        failing = _first(path / FAILURES, ARTIFACT_FILE)
        such_as = "" if failing is None else f"; it has runs that failed, such as {failing}"
        takers = "report, merge, shrink and --resume"
        return f"is the directory of a campaign, which {takers} take{such_as}"
    if is_comparison(path):
        return (
            "is the directory of a comparison, which report takes; its campaigns are in "
            f"{' and '.join(str(path / side) for side in SIDES)}"
        )
    for kind, file in (("runs", ARTIFACT_FILE), ("campaigns", PLAN_FILE)):
        if (example := _first(path, file)) is not None:
            return f"is a directory with {kind} in it: give one of them, such as {example}"
    return f"has no {ARTIFACT_FILE} (of a run) and no {PLAN_FILE} (of a campaign)"


def smaller_place(path: Path) -> Path:
    """Where ``faultlab shrink`` writes what it has made of the run in ``path``."""
    return path.with_name(f"{path.name}-small")


def is_run(path: Path) -> bool:
    """Whether a run has been written there to its end."""
    return (path / ARTIFACT_FILE).is_file()


def is_campaign(path: Path) -> bool:
    """Whether a campaign was begun there."""
    return (path / PLAN_FILE).is_file()


def is_comparison(path: Path) -> bool:
    """Whether ``faultlab compare`` has begun both of its campaigns there."""
    return all(is_campaign(path / side) for side in SIDES)


def _meant(path: Path) -> str:
    """A hint at a directory beside it, or at a run in the default place, with a name like it."""
    known = {
        child.name: child
        for parent in (Path(DEFAULT_PARENT), path.parent)
        if parent.is_dir()
        for child in sorted(parent.iterdir())
        if child.is_dir()
    }
    close = closest(path.name, known)
    return "" if close is None else f" (did you mean '{known[close]}'?)"


def _first(parent: Path, file: str) -> Path | None:
    """The first directory in ``parent`` that holds such a file."""
    return min((found.parent for found in parent.glob(f"*/{file}")), default=None)
