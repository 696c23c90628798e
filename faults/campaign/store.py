"""The directory of a campaign: its plan, one line for each seed, and what to look at.

``results.jsonl`` grows as results come, so a campaign that was interrupted can go on where it
stopped, and is legible at any time.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from faults.campaign.plan import Plan
from faults.campaign.result import SeedResult
from sim.errors import UsageError

PLAN_FILE, RESULTS_FILE, FAILURES = "campaign.json", "results.jsonl", "failures"


class Store:
    """Results in ``directory``, or nowhere but in memory when there is none."""

    def __init__(self, directory: Path | None, plan: Plan, *, resume: bool = False) -> None:
        self.directory = directory
        self.plan = plan
        self.results: list[SeedResult] = []
        if directory is not None:
            self._open(directory, resume=resume)

    @property
    def failures(self) -> str | None:
        """Where artifacts of failing runs go."""
        return None if self.directory is None else str(self.directory / FAILURES)

    def add(self, result: SeedResult) -> None:
        """Keep one more result."""
        self.results.append(result)
        if self.directory is not None:
            with (self.directory / RESULTS_FILE).open("ab") as file:
                file.write(msgspec.json.encode(result) + b"\n")

    def done(self) -> set[int]:
        """The seeds that have a result. One whose process died is tried again on resuming."""
        return {result.seed for result in self.results if result.status != "error"}

    def _open(self, directory: Path, *, resume: bool) -> None:
        path = directory / PLAN_FILE
        if resume:
            self.results = self._continued(directory)
            self._rewrite(directory)
            return
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UsageError(
                f"{directory}: is not a new or empty directory; name another, or add --resume to "
                "go on with the campaign in it"
            )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.format(msgspec.json.encode(self.plan), indent=2) + b"\n")
        except OSError as error:
            raise UsageError(f"{directory}: cannot be written: {error.strerror}") from error

    def _continued(self, directory: Path) -> list[SeedResult]:
        plan, results = read(directory)
        if plan != self.plan:
            differing = plan.differences(self.plan) or [f"shard {plan.shard} and {self.plan.shard}"]
            raise UsageError(
                f"{directory}: another campaign is in it ({'; '.join(differing)}, here); give the "
                "same options, or another --out"
            )
        return results

    def _rewrite(self, directory: Path) -> None:
        """Without results that are tried again, and without a line that was cut off."""
        done = self.done()
        self.results = [result for result in self.results if result.seed in done]
        lines = b"".join(msgspec.json.encode(result) + b"\n" for result in self.results)
        (directory / RESULTS_FILE).write_bytes(lines)


def read(directory: Path) -> tuple[Plan, list[SeedResult]]:
    """What a campaign has left in ``directory``; UsageError if there is none."""
    path = directory / PLAN_FILE
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise UsageError(f"{path}: is no campaign: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is no campaign: {error}") from error
    results = directory / RESULTS_FILE
    lines = results.read_bytes().splitlines() if results.exists() else []
    return plan, [result for line in lines if (result := _decoded(line)) is not None]


def _decoded(line: bytes) -> SeedResult | None:
    try:
        return msgspec.json.decode(line, type=SeedResult)
    except msgspec.DecodeError:  # the campaign was ended while it wrote this line
        return None
