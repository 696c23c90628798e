"""``faultlab issue``: what to hand to whoever maintains the code that failed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from faults import artifact
from faults.artifact import Artifact
from faults.cli.outcome import JsonFlag, Outcome, RunPath
from faults.cli.run_summary import print_plain
from faults.cli.simulate import simulate
from faults.issue import REPRODUCER, Issue, self_contained, write
from faults.wording import what_runs
from sim.errors import UsageError
from sim.scenario import Scenario

TEXT = "issue.md"


def command(
    path: RunPath,
    out: Annotated[
        Path | None, typer.Option(help="Write to this directory; by default beside the run.")
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where readers can get faultlab; it is printed as it is."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    json: JsonFlag = False,
) -> Outcome:
    """Write a recorded failure for somebody's tracker: issue.md, and reproducer.yaml to attach.

    The text has what was found, the story, the versions and the line that shows it; the file has
    the requests written out. Neither has addresses, paths or prompts. The file is run once, and
    the text says how that went, and what it takes that does not come with faultlab.

    \b
    Examples:
      faultlab issue faultlab-runs/llama-moriio-seed0-3f2a9c01
      faultlab issue runs/held --out report --repository https://git.example.org/faultlab

    Exit code 0: written; 2: no run there, it broke no rule, or the files are in use.
    """
    directory = artifact.find(path)
    scenario, recorded = artifact.read(directory)
    if not recorded.violations:
        raise UsageError(f"{directory}: broke no rule, so there is nothing to report")
    target = out or directory
    _require_vacant(target, force=force)
    small = self_contained(scenario)
    issue = write(
        recorded,
        artifact.read_records(directory, recorded),
        small,
        what=what_runs(small),
        again=_again(small, recorded),
        has_overlay=scenario.overlay is not None,
        repository=repository,
    )
    _save(issue, target)
    files = [str(target / name) for name in (TEXT, REPRODUCER)]
    return Outcome({"written": files, "text": issue.text}, partial(_render, issue, files))


def _require_vacant(target: Path, *, force: bool) -> None:
    for name in (TEXT, REPRODUCER):
        if not force and (target / name).exists():
            raise UsageError(f"{target / name}: exists already; add --force to overwrite it")


def _again(scenario: Scenario, recorded: Artifact) -> str:
    """A sentence about a run of the reproducer here and now."""
    outcome = simulate(scenario).result.outcome
    if outcome.signature() == recorded.signature:
        return f"It fails in this way in {outcome.virtual_s:.1f} virtual seconds."
    now = ", ".join(outcome.signature()) or f"no rule ({outcome.verdict})"
    return (
        "The reproducer alone does not fail in this way here: expected that it breaks "
        f"{', '.join(recorded.signature)}, and it breaks {now}.{_new_rules(recorded)}"
    )


def _new_rules(recorded: Artifact) -> str:
    new = recorded.rules_since()
    return f" When it was recorded there was no rule {', '.join(new)}." if new else ""


def _save(issue: Issue, target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / TEXT).write_text(issue.text, encoding="utf-8")
        (target / REPRODUCER).write_text(issue.reproducer, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror}") from error


def _render(issue: Issue, files: list[str], console: Console) -> None:
    print_plain(console, issue.text)
    print_plain(console, f"written to {' and '.join(files)}")
