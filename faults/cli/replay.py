"""``faultlab replay``: runs an artifact again and says whether it went the same way."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from faults import artifact
from faults.artifact import Artifact
from faults.cli.outcome import CannotRunError, ExitCode, JsonFlag, Outcome, RunPath
from faults.cli.run_summary import print_plain, render_run
from faults.cli.simulate import simulate
from faults.replay import Comparison, ReplayStatus, compare
from faults.wording import replay_line
from sim.errors import UsageError
from sim.outcome import RunResult
from sim.scenario import Scenario, with_settings

EXIT_CODES = {
    ReplayStatus.REPRODUCED: ExitCode.VIOLATION,
    ReplayStatus.SAME_PASS: ExitCode.OK,
    ReplayStatus.PASSES_NOW: ExitCode.OK,
    ReplayStatus.PASSES_DIFFERENTLY: ExitCode.OK,
    ReplayStatus.REPRODUCED_WITH_NEW: ExitCode.VIOLATION,
    ReplayStatus.FAILS_NOW: ExitCode.VIOLATION,
    ReplayStatus.FAILS_DIFFERENTLY: ExitCode.VIOLATION,
    ReplayStatus.FAILS_OTHERWISE: ExitCode.CANNOT_RUN,
    ReplayStatus.INCOMPLETE: ExitCode.CANNOT_RUN,
    ReplayStatus.NOT_REPRODUCED: ExitCode.TESTBED_FAILED,
}


def command(
    path: RunPath,
    overlay: Annotated[
        Path | None,
        typer.Option(help="Run with the sources in this directory instead, such as a patch."),
    ] = None,
    json: JsonFlag = False,
) -> Outcome:
    """Run a recorded run again; compare what happens with what happened.

    \b
    Examples:
      faultlab replay faultlab-runs/llama-moriio-seed0-3f2a9c01
      faultlab replay runs/held --overlay ~/vllm
      git bisect run faultlab replay ~/runs/held --overlay .

    Exit code 0: passes now (or is the same run, and that passed); 1: reproduced (rules that are
    newer than the recording may be broken on top), or fails in the same kind of way; 125: cannot
    be run or judged (scenario.yaml, artifact.json or the trace missing or edited, a start that is
    refused, another kind of failure, an error in a kind of fault or anywhere else in the
    testbed), which git bisect skips;
    3: went another way on the same versions, so the testbed is at fault.
    """
    try:
        directory = artifact.find(path)
        scenario, recorded = artifact.read(directory)
        require_complete(directory, scenario, recorded)
        if overlay is not None:
            scenario = with_settings(scenario, {"overlay": f"'{overlay.resolve()}'"})
        result = simulate(scenario).result
    except UsageError as error:
        raise CannotRunError(str(error)) from error
    comparison = compare(recorded, result, directory)
    return Outcome(
        document=_document(recorded, result, comparison),
        render=partial(
            _render,
            scenario=scenario,
            recorded=recorded,
            result=result,
            comparison=comparison,
            directory=directory,
            overlay=overlay,
        ),
        exit_code=EXIT_CODES[comparison.status],
    )


def require_complete(directory: Path, scenario: Scenario, recorded: Artifact) -> None:
    """UsageError for a run that its artifact, and the trace it names, cannot bring back."""
    if recorded.injected:
        raise UsageError(
            f"{directory}: Python code took part in this run ({', '.join(recorded.injected)}), and "
            "an artifact does not hold it; run that code again instead"
        )
    artifact.require_trace(scenario, recorded)


def _document(recorded: Artifact, result: RunResult, comparison: Comparison) -> dict[str, Any]:
    return {
        "status": comparison.status.value,
        "exit_code": int(EXIT_CODES[comparison.status]),
        "differences": comparison.differences,
        "first_divergence": comparison.first_divergence,
        "damage": comparison.damage,
        "new_rules": comparison.new_rules,
        "recorded": {
            "verdict": recorded.verdict,
            "signature": recorded.signature,
            "event_hash": recorded.event_hash,
        },
        "run": msgspec.to_builtins(result.outcome),
    }


def _render(
    console: Console,
    scenario: Scenario,
    recorded: Artifact,
    result: RunResult,
    comparison: Comparison,
    directory: Path,
    overlay: Path | None,
) -> None:
    same = recorded.event_hash == result.outcome.event_hash
    render_run(console, scenario, result, saved=None)
    console.print()
    print_plain(console, f"{comparison.words}: {directory}")
    if same:
        print_plain(console, f"  the event hash is the recorded one, {recorded.event_hash}")
    else:
        here = result.outcome.event_hash
        print_plain(console, f"  event hash: recorded {recorded.event_hash}, here {here}")
        was = ", ".join(recorded.signature) or recorded.verdict
        now = ", ".join(result.outcome.signature()) or result.outcome.verdict
        print_plain(console, f"  verdict: recorded {was}, here {now}")
    for difference in comparison.differences:
        print_plain(console, f"  other version: {difference}")
    if comparison.damage is not None:
        print_plain(console, f"  damage: {comparison.damage}")
    if not same:
        print_plain(console, f"  first difference: {comparison.first_divergence}")
    if result.outcome.violations:
        print_plain(console, f"to run it again:\n{replay_line(directory, overlay)}")
