"""Two versions of the testbed on one machine, each in a process of its own, that take turns.

So no figure has to be recorded, which would hold for one kind of processor only. What others do on
the machine goes on for longer than the two turns of a pair, so it is in both, or in one of few
pairs: the median of the pairs' ratios is what is compared. The least times are not: a moment of
quiet that only one of them had hid losses of a quarter.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Protocol, Self

from faults.bench.guard import MOST_LOSS, Verdict
from faults.cli.reexec import simulation_environment
from sim.errors import UsageError

HERE = Path(__file__).resolve().parents[2]
_WORKER = Path(__file__).with_name("guard_worker.py")
_TURNS, _ROUNDS = 7, 3


class Version(Protocol):
    """Runs one version's guarded work."""

    def names(self) -> list[str]: ...

    def seconds(self, name: str) -> float:
        """Processor time of one run."""
        ...

    def peak_mib(self, name: str) -> float:
        """The most memory that Python has allocated for one at one time."""
        ...


class Checkout:
    """The version in ``directory``, in a process that starts now and ends with the block.

    Raises:
        UsageError: on entering, there is no guard in it; on entering or later, its process ended.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._names: list[str] = []

    def __enter__(self) -> Self:
        if not (self._directory / "faults" / "bench" / "guard.py").exists():
            raise UsageError(
                f"{self._directory}: has no faults/bench/guard.py; give the root of a checkout of "
                "faultlab (git worktree add makes one of another version)"
            )
        kept = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(self._directory), *([kept] if kept else [])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which ends that one
            env={**simulation_environment(os.environ), "PYTHONPATH": path},
        )
        return self

    def __exit__(self, *_raised: object) -> None:
        self._process.kill()
        self._process.wait()

    def names(self) -> list[str]:
        """What it guards; waits until it has all of it ready."""
        self._names = self._names or self._answer().split()
        return self._names

    def seconds(self, name: str) -> float:
        """Processor time of one run of ``name``."""
        return self._asked(f"seconds {name}")

    def peak_mib(self, name: str) -> float:
        """The most memory that Python has allocated for one run of ``name`` at one time."""
        return self._asked(f"mib {name}")

    def _asked(self, question: str) -> float:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, as reading will tell
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            code = self._process.wait()
            raise UsageError(
                f"{self._directory}: its guard does not run here (exit code {code}; what it said "
                "is above); give a version that runs with what is installed"
            )
        return line


def in_both(here: Version, there: Version) -> list[str]:
    """What both guard.

    Raises:
        UsageError: nothing.
    """
    found = [name for name in here.names() if name in there.names()]
    if not found:
        raise UsageError(
            f"that version guards {', '.join(there.names())}, this one {', '.join(here.names())}: "
            "nothing to compare; give one that has a scenario of these"
        )
    return found


def compare(here: Version, there: Version) -> Iterator[Verdict]:
    """One verdict for each scenario of both: what the version here takes by what that one takes."""
    for name in in_both(here, there):
        yield _compared(name, here, there)


def compare_memory(here: Version, there: Version) -> Iterator[Verdict]:
    """One verdict for each scenario of both, of its peak in MiB."""
    for name in in_both(here, there):
        yield Verdict(name, there.peak_mib(name), here.peak_mib(name))


def _compared(name: str, here: Version, there: Version) -> Verdict:
    """Further rounds are taken until there is clearly no loss; all turns so far count."""
    ratios: list[float] = []
    for _round in range(_ROUNDS):
        for _turn in range(_TURNS):
            there_s = there.seconds(name)
            ratios.append(here.seconds(name) / there_s)
        verdict = Verdict(name, 1.0, median(ratios))
        if verdict.loss <= MOST_LOSS / 2:
            break
    return verdict
