"""The directory of a campaign: its plan, one line for each seed, and what to look at.

``results.jsonl`` grows as results come, so a campaign that was interrupted can go on where it
stopped, and is legible at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self, overload

import msgspec
from filelock import FileLock, Timeout

from faults.campaign.plan import Plan, in_lines
from faults.campaign.result import SeedResult
from faults.directories import FAILURES, PLAN_FILE, is_campaign, what_is
from sim.errors import UsageError

RESULTS_FILE, LEFT_FILE, LOCK_FILE = "results.jsonl", "left.json", ".lock"


class Store:
    """Results in ``directory``, or nowhere but in memory when there is none.

    What is in the directory is not in memory: a campaign may have a million seeds. Until it is
    closed, no other campaign can use the directory; what is in it can still be read afterwards.
    """

    def __init__(self, directory: Path | None, plan: Plan, *, resume: bool = False) -> None:
        self.directory = directory
        self.plan = plan
        self.done: set[int] = set()
        """The seeds that had a result before; one whose process died is tried again."""
        self._in_memory: list[SeedResult] = []
        self._lock: FileLock | None = None
        if directory is not None:
            self._open(directory, resume=resume)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others use the directory."""
        if self._lock is not None:
            self._lock.release()

    @property
    def failures(self) -> str | None:
        """Where artifacts of failing runs go."""
        return None if self.directory is None else str(self.directory / FAILURES)

    def add(self, result: SeedResult) -> None:
        """Keep one more result."""
        if self.directory is None:
            self._in_memory.append(result)
            return
        path = self.directory / RESULTS_FILE
        try:
            with path.open("ab") as file:
                file.write(msgspec.json.encode(result) + b"\n")
        except OSError as error:  # of a write it does not say where
            why = f"{error.strerror}; when that is mended, --resume goes on from here"
            raise OSError(error.errno, why, str(path)) from error

    def leave(self, seeds: Sequence[int]) -> None:
        """Keep that ``seeds`` were not run, because the time was over."""
        if self.directory is not None:
            (self.directory / LEFT_FILE).write_bytes(msgspec.json.encode(seeds))

    def results(self) -> Iterator[SeedResult]:
        """All that are kept, in the order in which they came."""
        return iter(self._in_memory) if self.directory is None else _results(self.directory)

    def _open(self, directory: Path, *, resume: bool) -> None:
        if resume:
            self._require_same_plan(directory)
            self._lock = _locked(directory)
            (directory / LEFT_FILE).unlink(missing_ok=True)
            self._rewrite(directory)
            return
        _require_empty(directory)
        plan = msgspec.json.format(msgspec.json.encode(self.plan), indent=2) + b"\n"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(directory)
            with (directory / PLAN_FILE).open("xb") as file:
                file.write(plan)
        except FileExistsError:  # another campaign began, and ended, meanwhile
            _require_empty(directory)
            raise
        except OSError as error:
            raise UsageError(f"{directory}: cannot be written: {error.strerror}") from error

    def _require_same_plan(self, directory: Path) -> None:
        plan = _plan(directory)
        if plan != self.plan:
            differing = plan.differences(self.plan) or [f"shard: {plan.part} → {self.plan.part}"]
            raise UsageError(
                f"{directory}: another campaign is in it; give the same options, or another --out. "
                "What is different (there → here):" + in_lines(differing)
            )

    def _rewrite(self, directory: Path) -> None:
        """One result a seed, without those that are tried again and a line that was cut off."""
        kept = directory / f"{RESULTS_FILE}.new"
        with kept.open("wb") as file:
            for result in _results(directory):
                if result.status != "error" and result.seed not in self.done:
                    file.write(msgspec.json.encode(result) + b"\n")
                    self.done.add(result.seed)
        kept.replace(directory / RESULTS_FILE)


class ResultsBySeed(Sequence[SeedResult]):
    """Those of ``store`` in the order of seeds; in memory only once somebody looks at them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _sorted(self) -> list[SeedResult]:
        return sorted(self._store.results(), key=lambda result: result.seed)

    def __len__(self) -> int:
        return len(self._sorted)

    @overload
    def __getitem__(self, index: int) -> SeedResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SeedResult]: ...

    def __getitem__(self, index: int | slice) -> SeedResult | list[SeedResult]:
        return self._sorted[index]


def read(directory: Path) -> tuple[Plan, list[SeedResult]]:
    """What a campaign has left in ``directory``: its plan, and one result a seed.

    Raises:
        UsageError: there is none; or a seed has results that differ.
    """
    plan, found = _plan(directory), dict[int, SeedResult]()
    for result in _results(directory):
        before = found.get(result.seed)
        if before is None or before.status == "error":
            found[result.seed] = result
        elif result.status != "error" and _what(result) != _what(before):
            raise UsageError(
                f"{directory / RESULTS_FILE}: seed {result.seed} has results that differ "
                f"({before.status} {before.event_hash}, {result.status} {result.event_hash}); run "
                "it again, and leave the line that is right"
            )
    return plan, list(found.values())


def read_left(directory: Path) -> list[int]:
    """The seeds for which the campaign in ``directory`` had no time left."""
    path = directory / LEFT_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[int])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: is no list of seeds: {error}") from error


def _what(result: SeedResult) -> tuple[object, ...]:
    """What is the same whenever a seed is run."""
    return result.status, result.failures, result.event_hash


def _require_empty(directory: Path) -> None:
    if not directory.exists():
        return
    if not directory.is_dir() or any(path.name != LOCK_FILE for path in directory.iterdir()):
        raise UsageError(
            f"{directory}: is not a new or empty directory; name another, or add --resume to go on "
            "with the campaign in it"
        )


def _locked(directory: Path) -> FileLock:
    """Held until it is released, or the process ends."""
    lock = FileLock(directory / LOCK_FILE, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"{directory}: a campaign is running in it; wait for its end, or name another --out"
        ) from None
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written: {error.strerror}") from error
    return lock


def _plan(directory: Path) -> Plan:
    path = directory / PLAN_FILE
    if not is_campaign(directory):
        raise UsageError(
            f"{directory}: {what_is(directory)}; expected the directory of a campaign, the --out "
            "of faultlab campaign"
        )
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not the plan of a campaign: {error}") from error


def _results(directory: Path) -> Iterator[SeedResult]:
    path = directory / RESULTS_FILE
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield msgspec.json.decode(line, type=SeedResult)
            except msgspec.DecodeError:
                continue  # the campaign was ended while it wrote this line
