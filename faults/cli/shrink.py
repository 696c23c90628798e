"""``faultlab shrink``: the smallest scenario that fails like a recorded run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from faults import artifact
from faults.campaign.shrink import Shrinking, size_of
from faults.cli.bar import bar
from faults.cli.loading import loading
from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from faults.cli.run import save
from faults.cli.run_summary import print_plain, render_findings, render_saved, verdict_of
from faults.plural import counted
from faults.wording import shrink_line
from sim.errors import UsageError
from sim.outcome import RunResult
from sim.scenario import Scenario

_TEST_FILE = "test_repro.py"
_TEST = '''"""Fails, with the story, as long as the run in scenario.yaml breaks a rule."""

from pathlib import Path

from faults import run


def test_nothing_is_broken() -> None:
    run(Path(__file__).with_name("scenario.yaml")).require_pass()
'''


class _Search:
    """What still fails in the same way, and the last of it, which is the smallest."""

    def __init__(self, run: Callable[[Scenario], Any], signature: Sequence[str]) -> None:
        self._run = run
        self._signature = signature
        self.smallest: tuple[Scenario, RunResult]

    def fails(self, smaller: Scenario) -> bool:
        result = self._run(smaller).result
        is_same: bool = result.outcome.signature() == self._signature
        if is_same:
            self.smallest = (smaller, result)  # each that is tried is smaller than the last
        return is_same

    def shrink(
        self, scenario: Scenario, max_runs: int, advance: Callable[[bool], object]
    ) -> tuple[Shrinking, bool]:
        """The shrinking as far as it came, and whether it was interrupted."""

        def shows(smaller: Scenario) -> bool:
            is_same = False
            try:
                is_same = self.fails(smaller)
            finally:
                advance(is_same)
            return is_same

        shrinking = Shrinking(scenario, shows, max_runs, runs=0)
        try:
            shrinking.run()
        except KeyboardInterrupt:
            return shrinking, True
        return shrinking, False


def command(
    path: Annotated[
        Path, typer.Argument(metavar="FILE_OR_DIR", help="The directory of a failing run.")
    ],
    max_runs: Annotated[int, typer.Option(min=1, help="Use at most so many runs.")] = 200,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it; next to the run if not given.")
    ] = None,
    json: JsonFlag = False,
) -> Outcome:
    """Look for the smallest scenario that fails in the same way.

    Faults, requests, lengths, engine.num_blocks, engines, options and times are reduced; the broken
    rules stay the same. The result is explained as by faultlab run, and written as an artifact
    with its report and a test_repro.py for a pytest suite.

    \b
    Examples:
      faultlab shrink faultlab-runs/llama-moriio-seed0-3f2a9c01
      faultlab shrink night/failures/seed-17 --max-runs 50 --out small

    Exit code 0: written; 2: bad usage, or the run did not fail, or does not fail here; 130: Ctrl-C
    ended it (143: SIGTERM did), and the smallest so far is written, to go on from.
    """
    directory = artifact.find(path)
    scenario, recorded = artifact.read(directory)
    if recorded.verdict == "pass":
        raise UsageError(f"{directory}: that run broke no rule, so there is nothing to shrink")
    target = out or directory.with_name(f"{directory.name}-small")
    artifact.check_vacant(target, force=False)
    with loading():
        from faults.running import run  # noqa: PLC0415  # loads vLLM

    search = _Search(run, recorded.signature)
    if not search.fails(scenario):
        raise UsageError(
            f"{directory}: does not fail in the recorded way here ({', '.join(recorded.signature)})"
            "; faultlab replay says what is different"
        )
    with bar("shrinking", max_runs - 1, "still fail", threaded=False) as advance:
        shrinking, is_interrupted = search.shrink(scenario, max_runs - 1, advance)
    small, result = search.smallest
    save(small, result, target, force=False)
    (target / _TEST_FILE).write_text(_TEST, encoding="utf-8")
    document = {
        "signature": recorded.signature,
        "runs": shrinking.runs + 1,
        "stopped_at_limit": shrinking.cut_short,
        "interrupted": is_interrupted,
        "before": size_of(scenario),
        "after": size_of(small),
        "directory": str(target),
    }
    code = ExitCode.INTERRUPTED if is_interrupted else ExitCode.OK
    return Outcome(document, partial(_render, document, result), code)


def sizes_line(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """What has become smaller, and what has stayed."""
    return ", ".join(
        f"{name} {size} to {after[name]}" if size != after[name] else f"{name} still {size}"
        for name, size in before.items()
    )


def _render(document: dict[str, Any], result: RunResult, console: Console) -> None:
    before, after = document["before"], document["after"]
    print_plain(console, f"{counted(document['runs'], 'run')}: {sizes_line(before, after)}")
    if document["stopped_at_limit"]:
        print_plain(
            console, f"stopped at the limit of {counted(document['runs'], 'run')} (--max-runs)"
        )
    if document["interrupted"]:
        again = shrink_line(Path(document["directory"]))
        print_plain(console, f"interrupted; to go on from here: {again}")
    console.print(verdict_of(result.outcome))
    render_findings(console, result)
    directory = Path(document["directory"])
    issue = shlex.join(["faultlab", "issue", str(directory)])
    for_others = [f"for pytest: {directory / _TEST_FILE}", f"for a tracker: {issue}"]
    render_saved(console, directory, for_others)
