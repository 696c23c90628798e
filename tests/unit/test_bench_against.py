from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.bench import against
from faults.bench.guard import Verdict
from faults.cli import dispatch
from faults.cli.outcome import ExitCode


class Fake:
    """A version whose work ``it`` takes what a script says; it counts its turns."""

    def __init__(self, seconds: Callable[[], float], name: str = "it") -> None:
        self._seconds, self._name, self.turns = seconds, name, 0

    def names(self) -> list[str]:
        return [self._name, "other"]

    def seconds(self, name: str) -> float:
        self.turns += name == self._name
        return self._seconds()

    def peak_mib(self, name: str) -> float:
        return 4.0


def verdict(here: Fake, there: Fake) -> Verdict:
    found = {verdict.name: verdict for verdict in against.compare(here, there)}
    return found["it"]


@pytest.mark.parametrize(
    ("slower", "passes"), [(0.5, True), (1.0, True), (1.24, True), (1.26, False), (2.0, False)]
)
def test_a_loss_of_a_fifth_is_too_much(slower: float, passes: bool) -> None:
    """1.25 times the time is 0.8 of the speed. Whatever may be a loss is measured for longer."""
    here, there = Fake(lambda: slower * 0.1), Fake(lambda: 0.1)
    found = verdict(here, there)
    assert found.passed == passes
    assert found.loss == pytest.approx(1 - 1 / slower)
    assert here.turns == there.turns == (7 if slower <= 1 else 21)


def test_a_machine_that_others_use_is_no_loss_and_hides_none() -> None:
    """Every call takes up to a fifth longer, and each twentieth three times as long."""
    rng = random.Random(1)

    def noise() -> float:
        return 0.1 * rng.uniform(1, 1.2) * (3 if rng.random() < 0.05 else 1)

    assert all(verdict(Fake(noise), Fake(noise)).passed for _ in range(200))
    slow = [verdict(Fake(lambda: 1.5 * noise()), Fake(noise)) for _ in range(200)]
    assert not any(found.passed for found in slow)


def test_a_machine_that_is_slow_from_some_moment_on_is_no_loss() -> None:
    """Whichever has its turn when it begins: the turns before count."""
    for moment in range(2, 14):
        calls = iter(range(1_000))
        version = Fake(lambda calls=calls, moment=moment: 0.1 if next(calls) < moment else 0.3)
        assert verdict(version, version).passed


def test_a_few_lucky_turns_hide_no_loss() -> None:
    """That it is below the limit after seven is not enough."""
    lucky = iter([1.2] * 7)
    assert not verdict(Fake(lambda: 0.1 * next(lucky, 1.33)), Fake(lambda: 0.1)).passed


def test_what_only_one_guards_is_not_compared() -> None:
    here, there = Fake(lambda: 0.1, "new"), Fake(lambda: 0.1, "old")
    assert [found.name for found in against.compare(here, there)] == ["other"]
    assert [found.name for found in against.compare_memory(here, there)] == ["other"]


_GUARD = """
import time
print("loading something")
def guarded():
    print("ready")
    return {"it": lambda: %s}
def peak_mib(work):
    return MIB
CLOCK = [0.0]
MIB = %s
"""
_MEASURE = """
from faults.bench.guard import CLOCK
def cpu_clock():
    return sum(CLOCK)
"""


def checkout(directory: Path, work: str, mib: float = 1.0) -> Path:
    """A version with that work, which prints where answers are expected."""
    package = directory / "faults" / "bench"
    package.mkdir(parents=True)
    for init in (package.parent, package):
        (init / "__init__.py").touch()
    (package / "guard.py").write_text(_GUARD % (work, mib))
    (package / "measure.py").write_text(_MEASURE)
    return directory


def test_the_command_measures_two_checkouts_in_turns(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each in a process of its own, and by its own code."""
    before = checkout(tmp_path / "before", "CLOCK.append(0.25)", 40.0)
    same = checkout(tmp_path / "same", "CLOCK.append(0.25)", 40.0)
    slow = checkout(tmp_path / "slow", "CLOCK.append(0.5)", 80.0)
    for after, code in ((same, ExitCode.OK), (slow, ExitCode.VIOLATION)):
        monkeypatch.setattr(against, "HERE", after)
        assert dispatch.run(["bench", "--guard", "--against", str(before)]) == code
    said = capfd.readouterr().out
    assert f"against {before}" in " ".join(said.split())
    assert "it: 1.000, there 1.000: 0% faster" in said
    assert "it: 2.000, there 1.000: 50% slower, more than 20%" in said
    assert "it: 80.000 MiB, there 40.000: 50% of it new, more than 20%" in said
    assert dispatch.run(["bench", "--guard", "--against", str(before), "--json"]) == code
    document = json.loads(capfd.readouterr().out)
    assert document["against"] == str(before)
    assert document["scenarios"] == [{"name": "it", "recorded": 1.0, "measured": 2.0, "loss": 0.5}]


def test_what_cannot_be_compared_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A directory without a guard, one whose guard does not run, this version itself."""
    here = checkout(tmp_path / "here", "CLOCK.append(0.25)")
    monkeypatch.setattr(against, "HERE", here)
    broken = checkout(tmp_path / "broken", "None")
    dying = checkout(tmp_path / "dying", "exit(3)")
    (broken / "faults" / "bench" / "measure.py").write_text("import nothing_of_that_name")
    for directory, said in (
        (tmp_path, "has no faults/bench/guard.py"),
        (broken, "its guard does not run here (exit code 1"),
        (dying, "its guard does not run here (exit code 3"),
        (here, "is this version itself"),
    ):
        command = ["bench", "--guard", "--against", str(directory)]
        assert dispatch.run(command) == ExitCode.BAD_USAGE
        assert said in capfd.readouterr().err
    assert dispatch.run(["bench", "--against", str(here)]) == ExitCode.BAD_USAGE
    assert "goes with --guard" in capfd.readouterr().err
