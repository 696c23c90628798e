"""Looks for the smallest scenario that fails like one recorded run, and writes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from faults import artifact
from faults.campaign.result import failures_of
from faults.campaign.shrink import Shrinking, size_of
from faults.cli.bar import bar
from faults.cli.loading import loading
from faults.cli.run import save
from sim.errors import UsageError
from sim.outcome import RunResult
from sim.scenario import Scenario

TEST_FILE: Final = "test_repro.py"
_TEST = '''"""Fails, with the story, as long as the run in scenario.yaml breaks a rule."""

from pathlib import Path

from faults import run


def test_nothing_is_broken() -> None:
    run(Path(__file__).with_name("scenario.yaml")).require_pass()
'''


@dataclass(frozen=True)
class Smaller:
    """The smallest scenario so far, what its run came to, and how it was found, for ``--json``."""

    scenario: Scenario
    result: RunResult
    document: dict[str, Any]

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C came while there was still something to try."""
        return bool(self.document["interrupted"])

    def write(self, target: Path, *, force: bool) -> None:
        """The artifact, its report, and a test; UsageError as ``artifact.check_vacant``.

        The test comes first: where there is an artifact, nothing but the report can be missing.
        """
        artifact.check_vacant(target, force=force)
        target.mkdir(parents=True, exist_ok=True)
        (target / TEST_FILE).write_text(_TEST, encoding="utf-8")
        save(self.scenario, self.result, target, force=True)


def find_smaller(
    directory: Path, max_runs: int, title: str, groups: Collection[str] = ()
) -> Smaller:
    """Shrink the run in ``directory``, with a bar of that title.

    Args:
        directory: of an artifact.
        max_runs: at most so many runs are used, the first of which is of the whole scenario.
        title: of the bar.
        groups: of failures that the smaller one has to fall into as well.

    Raises:
        UsageError: the run broke no rule, or does not fail here in the recorded way.
        TestbedError: the whole scenario cannot be run here.
        KeyboardInterrupt: before the whole scenario was run.
    """
    scenario, recorded = artifact.read(directory)
    if recorded.verdict == "pass":
        raise UsageError(f"{directory}: that run broke no rule, so there is nothing to shrink")
    with loading():
        from faults.running import run  # noqa: PLC0415  # loads vLLM

    search = _Search(run, recorded.signature, groups)
    if not search.fails(scenario):
        raise UsageError(
            f"{directory}: does not fail in the recorded way here ({', '.join(recorded.signature)})"
            "; faultlab replay says what is different"
        )
    with bar(title, max_runs - 1, "still fail", threaded=False) as advance:
        shrinking, is_interrupted = search.shrink(scenario, max_runs - 1, advance)
    small, result = search.smallest
    document = {
        "signature": recorded.signature,
        "runs": shrinking.runs + 1,
        "stopped_at_limit": shrinking.cut_short,
        "interrupted": is_interrupted,
        "before": size_of(scenario),
        "after": size_of(small),
    }
    return Smaller(small, result, document)


def sizes_line(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """What has become smaller, and what has stayed."""
    return ", ".join(
        f"{name} {size} to {after[name]}" if size != after[name] else f"{name} still {size}"
        for name, size in before.items()
    )


class _Search:
    """What still fails in the same way, and the last of it, which is the smallest."""

    def __init__(
        self, run: Callable[[Scenario], Any], signature: Sequence[str], groups: Collection[str]
    ) -> None:
        self._run = run
        self._signature = signature
        self._groups = groups
        self.smallest: tuple[Scenario, RunResult]

    def fails(self, smaller: Scenario) -> bool:
        result = self._run(smaller).result
        outcome = result.outcome
        fallen_into = {failure.group for failure in failures_of(outcome.violations)}
        is_same = outcome.signature() == self._signature and fallen_into.issuperset(self._groups)
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
