from __future__ import annotations

import json
import platform
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.bench import guard, processor
from faults.bench.scenarios import KERNEL
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from sim.errors import UsageError
from sim.kernel import Kernel
from sim.scenario.yaml_text import parse_yaml

RATIO = 3.0


class Clock:
    """Processor time that passes only where a script says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def takes(self, seconds: Callable[[], float]) -> guard.Work:
        def work() -> None:
            self.now_s += seconds()

        return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(guard, "cpu_clock", made)
    return made


def verdict(clock: Clock, slower: float, noise: Callable[[], float]) -> guard.Verdict:
    """Of work that takes ``slower`` times what was recorded, both times ``noise``."""
    work, unchanging = clock.takes(lambda: RATIO * slower * noise()), clock.takes(noise)
    (found,) = guard.compare({"it": work}, unchanging, guard.Record("3.11", {"it": RATIO}))
    return found


@pytest.mark.parametrize(
    ("slower", "passes"), [(0.5, True), (1.0, True), (1.24, True), (1.26, False), (2.0, False)]
)
def test_a_loss_of_a_fifth_is_too_much(clock: Clock, slower: float, passes: bool) -> None:
    """1.25 times the time is 0.8 of the speed."""
    found = verdict(clock, slower, lambda: 0.1)
    assert found.passed == passes
    assert found.loss == pytest.approx(1 - 1 / slower)


def test_a_machine_that_others_use_is_no_loss_and_hides_none(clock: Clock) -> None:
    """Every call takes up to a fifth longer, and each tenth three times as long."""
    rng = random.Random(1)

    def noise() -> float:
        return 0.1 * rng.uniform(1, 1.2) * (3 if rng.random() < 0.1 else 1)

    assert all(verdict(clock, 1.0, noise).passed for _ in range(200))
    assert not any(verdict(clock, 1.6, noise).passed for _ in range(200))


def test_a_machine_that_is_slow_from_some_moment_on_is_no_loss(clock: Clock) -> None:
    """Both become slower."""
    calls = iter(range(1_000))
    assert verdict(clock, 1.0, lambda: 0.1 if next(calls) < 7 else 0.3).passed


def test_one_bad_round_is_measured_again(clock: Clock) -> None:
    """Something may slow the work down alone, for a while."""
    slow = iter([2.0] * guard._TURNS)
    work = clock.takes(lambda: RATIO * 0.1 * next(slow, 1.0))
    record = guard.Record("3.11", {"it": RATIO})
    (found,) = guard.compare({"it": work}, clock.takes(lambda: 0.1), record)
    assert found.passed


def test_a_slowdown_of_the_testbed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With real clocks: the same kernel as recorded passes, not one whose records cost more."""
    for name, value in (("_KERNEL_EVENTS", 1_000), ("_SIMPY_EVENTS", 2_000), ("_OBJECTS", 1_000)):
        monkeypatch.setattr(guard, name, value)
    works = {KERNEL: lambda: guard.kernel_events_per_s(guard._KERNEL_EVENTS)}
    unchanging = guard.unchanging_work()
    record = guard.measure(works, unchanging)
    (same,) = guard.compare(works, unchanging, record)
    assert same.passed, same
    plain = Kernel.record

    def slow(self: Kernel, kind: str, **fields: Any) -> None:
        sum(range(1_000))
        plain(self, kind, **fields)

    monkeypatch.setattr(Kernel, "record", slow)
    (planted,) = guard.compare(works, unchanging, record)
    assert planted.loss > guard.MOST_LOSS, planted


def test_the_command_fails_on_a_loss_and_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What was recorded passes; twice as slow does not."""
    clock, factor = Clock(), 1.0
    monkeypatch.setattr(guard, "cpu_clock", clock)
    monkeypatch.setattr(guard, "peak_mib", lambda work: 40.0 * factor)
    monkeypatch.setattr(guard, "RECORDED", tmp_path / "guard.yaml")
    monkeypatch.setattr(guard, "NAMES", ("it",))
    monkeypatch.setattr(guard, "guarded", lambda: {"it": clock.takes(lambda: RATIO * factor)})
    monkeypatch.setattr(guard, "unchanging_work", lambda: clock.takes(lambda: 1.0))
    assert dispatch.run(["bench", "--record-guard"]) == ExitCode.OK
    assert dispatch.run(["bench", "--guard"]) == ExitCode.OK
    factor = 2.0
    capsys.readouterr()
    assert dispatch.run(["bench", "--guard"]) == ExitCode.VIOLATION
    said = capsys.readouterr().out
    assert "it: 6.000, recorded 3.000: 50% slower, more than 20%" in said
    assert "it: 80.000 MiB, recorded 40.000: 50% of it new, more than 20%" in said
    assert dispatch.run(["bench", "--guard", "--json"]) == ExitCode.VIOLATION
    (scenario,) = json.loads(capsys.readouterr().out)["scenarios"]
    assert scenario == {"name": "it", "recorded": 3.0, "measured": 6.0, "loss": 0.5}
    assert dispatch.run(["bench", KERNEL, "--guard"]) == ExitCode.BAD_USAGE


def test_memory_that_is_kept_is_found() -> None:
    """The peak is of what is held at one time, and the same in each run."""
    peak = guard.peak_mib(lambda: bytearray(10 << 20))
    assert peak == pytest.approx(10, rel=0.05)
    (found,) = guard.compare_memory(
        {"it": lambda: bytearray(10 << 20)}, guard.Record("3.11", {}, {"it": peak / 2})
    )
    assert found.loss == pytest.approx(0.5, rel=0.05)
    assert not found.passed


def test_the_record_in_the_repository_is_of_what_is_guarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scenario without a ratio would not be guarded, on whichever kind of processor."""
    kinds = parse_yaml(guard.RECORDED.read_text(), source="guard.yaml")
    for kind, python in ((kind, kinds[kind]["python"]) for kind in kinds):
        monkeypatch.setattr(processor, "kind", lambda kind=kind: kind)
        monkeypatch.setattr(guard, "_python", lambda python=python: python)
        assert set(guard.read(guard.RECORDED, guard.NAMES).ratios) == set(guard.NAMES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("KIND: {python: '3.11', ratios: {it: fast}}\n", "is no record of ratios"),
        ("KIND: {python: '3.11', ratios: {}}\n", "has no ratio of it"),
        ("KIND: {python: '3.11', ratios: {it: 1.0}}\n", "has no peak of memory of it"),
        (
            "KIND: {python: '2.7', ratios: {it: 1.0}, memory_mib: {it: 1.0}}\n",
            r"of Python 2\.7, this is 3\.1",
        ),
        (
            "another: {python: '3.11', ratios: {it: 1.0}, memory_mib: {it: 1.0}}\n",
            r"has no record for KIND, .*\(another\).* --against",
        ),
    ],
)
def test_a_record_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str
) -> None:
    """With the command that makes one; another kind of processor's is none, either."""
    monkeypatch.setattr(processor, "kind", lambda: "KIND")
    path = tmp_path / "guard.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"(?s){said}.*--record-guard"):
        guard.read(path, ["it"])
    with pytest.raises(UsageError, match="is no record"):
        guard.read(tmp_path / "none.yaml", ["it"])


def test_each_kind_of_processor_has_its_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To record one leaves the others as they are; what is no record is replaced."""
    path = tmp_path / "guard.yaml"
    path.write_text("ratios: {it: 1.0}\n")
    for kind, ratio in (("one", 1.0), ("other", 2.0), ("one", 3.0)):
        monkeypatch.setattr(processor, "kind", lambda kind=kind: kind)
        guard.write(path, guard.Record(guard._python(), {"it": ratio}, {"it": 9.0}))
        assert guard.read(path, ["it"]).ratios == {"it": ratio}
    monkeypatch.setattr(processor, "kind", lambda: "other")
    assert guard.read(path, ["it"]).ratios == {"it": 2.0}


@pytest.mark.parametrize(
    ("cpuinfo", "kind", "name"),
    [
        (
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 167\n"
            "model name\t: Intel(R) Xeon(R) Processor\n\nprocessor\t: 1\nmodel\t\t: 9\n",
            "GenuineIntel family 6 model 167",
            "Intel(R) Xeon(R) Processor",
        ),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", platform.machine(), platform.machine()),
        (None, platform.machine(), platform.machine()),
    ],
)
def test_a_kind_of_processor_is_told_by_its_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str | None, kind: str, name: str
) -> None:
    """Virtual machines give the same name to several."""
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    monkeypatch.setattr(processor, "_CPUINFO", path)
    assert (processor.kind(), processor.name()) == (kind, name)
