"""``faultlab mutants``: deliberate defects of the connector, and how soon each is noticed."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from faults.campaign.seeds import parse_seeds
from faults.cli.bar import bar
from faults.cli.campaign import SeedLimit
from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from faults.cli.run_summary import print_plain
from faults.cli.tables import print_table
from faults.mutants.catalog import chosen
from faults.mutants.hunt import Hunt, hunt_all
from faults.plural import counted
from sim.stopwatch import wall_clock

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these; all without.")
]
Seeds = Annotated[
    str, typer.Option(metavar="N|A:B", help="Try at most the first N seeds, or A up to B.")
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes; as many as there are processors.")
]


def command(
    names: Names = None,
    seeds: Seeds = "20",
    jobs: Jobs = None,
    seed_limit: SeedLimit = 600.0,
    json: JsonFlag = False,
) -> Outcome:
    """Run the hybrid connector with one deliberate defect at a time, until a rule is broken.

    Each defect is run on seeds like those of a campaign. A failure counts only if the connector
    without the defect does not fail in the same way on the same seed.

    \b
    Examples:
      faultlab mutants
      faultlab mutants --seeds 5 group-order no-fence

    Exit code 0: all were caught; 1: one was not; 2: bad usage; 3: a mutant no longer fits the code;
    130: Ctrl-C ended it (143: SIGTERM did), and all that were done were caught.
    """
    mutants = chosen(names or ())
    tried = parse_seeds(seeds)
    begin_s = wall_clock()
    found: dict[str, Hunt] = {}
    with _progress(len(mutants)) as advance, suppress(KeyboardInterrupt):
        for result in hunt_all(mutants, tried, jobs or os.cpu_count() or 1, seed_limit):
            found[result.name] = result
            advance(result)
    hunts = [found[mutant.name] for mutant in mutants if mutant.name in found]
    left = [mutant.name for mutant in mutants if mutant.name not in found]
    document = {
        **_document(hunts, len(tried)),
        "not_run": left,
        "wall_s": wall_clock() - begin_s,
    }
    return Outcome(document, partial(_render, document, seeds), _exit_code(document))


def _exit_code(document: dict[str, Any]) -> ExitCode:
    if document["not_caught"]:
        return ExitCode.VIOLATION
    return ExitCode.INTERRUPTED if document["not_run"] else ExitCode.OK


def _document(hunts: list[Hunt], seeds: int) -> dict[str, Any]:
    return {
        "seeds": seeds,
        "mutants": [
            {"seeds_to_detection": None if hunt.seed is None else hunt.runs}
            | msgspec.to_builtins(hunt)
            for hunt in hunts
        ],
        "caught": sum(hunt.seed is not None for hunt in hunts),
        "not_caught": [hunt.name for hunt in hunts if hunt.seed is None],
    }


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on stderr for people, and a line for each mutant in a log."""
    if not sys.stderr.isatty():
        yield _log
        return
    with bar("mutants", total, "not caught") as advance:
        yield lambda result: advance(result.seed is None)


def _log(result: Hunt) -> None:
    how = f"not caught in {counted(result.runs, 'seed')}"
    if result.seed is not None:
        how = f"caught by seed {result.seed}, run {result.runs}: {', '.join(result.groups)}"
    print(f"{result.name}: {how}", *result.others, sep="\n  ", file=sys.stderr, flush=True)


def _render(document: dict[str, Any], tried: str, console: Console) -> None:
    """For people; ``tried`` is what --seeds was given."""
    table = Table("mutant", "what it breaks", "where", "seeds", "caught by")
    for row in document["mutants"]:
        seeds = row["seeds_to_detection"]
        shown = f"not in {row['runs']}" if seeds is None else str(seeds)
        table.add_row(row["name"], row["breaks"], row["place"], shown, ", ".join(row["groups"]))
    if document["mutants"]:
        print_table(console, table)
    for row in document["mutants"]:
        if row["others"]:
            print_plain(console, f"{row['name']}: {row['others'][0]} ({len(row['others'])} such)")
    print_plain(
        console,
        f"{document['caught']} of {len(document['mutants'])} caught within {document['seeds']} "
        f"seeds, in {document['wall_s']:.0f} s",
    )
    if left := document["not_run"]:
        rest = shlex.join(["faultlab", "mutants", "--seeds", tried, *left])
        print_plain(console, f"not run: {counted(len(left), 'mutant')}, as it was interrupted")
        print_plain(console, f"to run the rest: {rest}")
    if missed := document["not_caught"]:
        again = shlex.join(["faultlab", "mutants", "--seeds", tried, *missed])
        print_plain(console, f"to try those again that were not caught:\n{again}")
