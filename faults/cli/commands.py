"""The table of commands.

To add one: write ``faults/cli/NAME.py`` with a function ``command`` that Typer can read (its
docstring is the help text, a parameter ``json: JsonFlag = False`` declares ``--json``) and that
returns an ``Outcome``; then add its line below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from faults.cli.outcome import Outcome


@dataclass(frozen=True)
class Command:
    """One command: its name, the module that holds it, and one line for the overview."""

    name: str
    module: str
    summary: str

    def load(self) -> Callable[..., Outcome]:
        """Import the module (which may import vLLM, seconds) and return its function."""
        function: Callable[..., Outcome] = import_module(self.module).command
        return function


COMMANDS = (
    Command("run", "faults.cli.run", "Run one scenario and judge it."),
    Command("campaign", "faults.cli.campaign", "Run many seeds with faults of their own."),
    Command("compare", "faults.cli.compare", "Run the same seeds before and after a change."),
    Command("merge", "faults.cli.merge", "Put the shards of a campaign together."),
    Command("corpus", "faults.cli.corpus", "Run the scenarios after public reports."),
    Command("mutants", "faults.cli.mutants", "Run deliberate defects of the connector."),
    Command("shrink", "faults.cli.shrink", "Find the smallest scenario that still fails."),
    Command("replay", "faults.cli.replay", "Run a recorded run again and compare."),
    Command("diff", "faults.cli.diff", "Show where two recorded runs part, and how each went on."),
    Command("issue", "faults.cli.issue", "Write a recorded failure for somebody's tracker."),
    Command("report", "faults.cli.report", "Write a campaign, or a run, as one HTML file."),
    Command("trace", "faults.cli.trace", "Write a recorded run as a trace for Perfetto."),
    Command("init", "faults.cli.init", "Write a scenario with comments to start from."),
    Command("schema", "faults.cli.schema", "Print the JSON Schema of scenario files."),
    Command("models", "faults.cli.models", "List the models, with what their caches look like."),
    Command("fabrics", "faults.cli.fabrics", "List the fabrics; compare one with measurements."),
    Command("connectors", "faults.cli.connectors", "List the connectors that can be tested."),
    Command("faults", "faults.cli.faults", "List the faults that can be injected."),
    Command("oracles", "faults.cli.oracles", "List the rules that every run is judged by."),
    Command("bench", "faults.cli.bench", "Measure how fast the testbed is."),
    Command("doctor", "faults.cli.doctor", "Check this machine; say what will and will not run."),
)
