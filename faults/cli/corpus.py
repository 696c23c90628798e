"""``faultlab corpus``: the scenarios after public reports, as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from faults.cli.loading import loading
from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from faults.cli.run_summary import print_plain
from faults.cli.tables import print_table
from faults.corpus.entry import OWN, UPSTREAM, Entry, load_entry, names
from faults.plural import counted
from sim.engine.connectors import get_connector

if TYPE_CHECKING:
    from faults.corpus.check import Finding

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Which entries. Default: all.")
]
Connector = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A known connector, or package.module:Class; can be given several times. "
        f"Default: {UPSTREAM} and {OWN}.",
    ),
]


def command(entries: Names = None, connector: Connector = None, json: JsonFlag = False) -> Outcome:
    """Run the scenarios after public reports and compare with what is expected.

    What moriio does is known of each, and what hybrid has to do and does. Any other connector has
    to break no rule.

    \b
    Examples:
      faultlab corpus
      faultlab corpus vllm-40340 vllm-56465 --connector hybrid
      faultlab corpus --connector my_package.connector:MyConnector --json

    Exit code 0: all as expected; 1: a difference; 2: bad usage; 3: the testbed failed.
    """
    chosen = {name: load_entry(name) for name in dict.fromkeys(entries or names())}
    connectors = list(dict.fromkeys(connector or (UPSTREAM, OWN)))
    for each in connectors:
        get_connector(each)
    with loading():
        from faults.corpus.check import check  # noqa: PLC0415  # loads vLLM

    pairs = [(name, each) for name in chosen for each in connectors]
    findings = []
    with _progress(len(pairs)) as begin:
        for name, each in pairs:
            begin(f"{name} with {each}")
            findings.append(check(name, chosen[name], each))
    differences = sum(finding.differs for finding in findings)
    document = {
        "entries": {name: _about(entry) for name, entry in chosen.items()},
        "runs": msgspec.to_builtins(findings),
        "differences": differences,
    }
    return Outcome(
        document,
        partial(_render, chosen, findings),
        ExitCode.VIOLATION if differences else ExitCode.OK,
    )


def _about(entry: Entry) -> dict[str, Any]:
    return {
        "report": entry.report,
        "symptom": entry.symptom,
        "upstream": entry.upstream.status,
        "why": entry.upstream.why,
        "hybrid_must": entry.hybrid.must,
        "hybrid_falls_short": entry.hybrid.falls_short,
    }


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr, if somebody looks at it; it moves between runs."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        bar, begun = progress.add_task("", total=total), 0

        def begin(what: str) -> None:
            nonlocal begun
            progress.update(bar, description=what, completed=begun, refresh=True)
            begun += 1

        yield begin


def _render(entries: dict[str, Entry], findings: list[Finding], console: Console) -> None:
    table = Table(title="corpus")
    for heading in ("entry", "upstream", "connector", "requests", "broken rules", "verdict"):
        table.add_column(heading)
    for finding in findings:
        table.add_row(
            finding.name,
            entries[finding.name].upstream.status,
            finding.connector,
            finding.found.requests_in_words,
            "\n".join(finding.found.violations) or "none",
            finding.verdict,
        )
    print_table(console, table)
    for finding in findings:
        if finding.differs:
            print_plain(console, finding.difference)
    differing = [finding for finding in findings if finding.differs]
    print_plain(console, f"{counted(len(findings), 'run')}, {len(differing)} other than expected")
    if differing:
        alone = f"faultlab corpus {differing[0].name} --connector {differing[0].connector}"
        print_plain(console, f"to run the first of those again:\n{alone}")
