"""Notices when the testbed becomes slower, on machines that differ and are busy.

Absolute times say little there. So each scenario takes turns with work that never changes, in one
process, and what is compared with a recorded figure is the ratio of their processor times: the
median of several, and again if that is too much, because only a real loss is there every time.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from faults.bench.kernel import bare_simpy_events_per_s, kernel_events_per_s
from faults.bench.measure import cpu_clock
from faults.bench.scenarios import KERNEL, STANDARD, fixed_scenario
from sim.errors import UsageError
from sim.run import rehearse, run
from sim.scenario.yaml_text import parse_yaml, print_yaml

MOST_LOSS = 0.20
"""Of speed."""
RECORDED = Path(__file__).with_name("guard.yaml")
_TURNS, _ROUNDS = 7, 3
_SIMPY_EVENTS, _KERNEL_EVENTS, _OBJECTS = 20_000, 20_000, 100_000
_REMEDY = "record them anew with `faultlab bench --record-guard`"

Work = Callable[[], object]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ratios by name, and the Python that they hold for, because each version has its own."""

    python: str
    ratios: dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """How one scenario compares: ratios of processor time to that of the unchanging work."""

    name: str
    recorded: float
    measured: float

    @property
    def loss(self) -> float:
        """Of speed; below 0 if it is quicker than it was."""
        return 1 - self.recorded / self.measured

    @property
    def passed(self) -> bool:
        return self.loss <= MOST_LOSS


def guarded() -> dict[str, Work]:
    """What is guarded, ready to be run, by name."""
    standard = fixed_scenario(STANDARD)
    rehearse(standard)
    return {
        STANDARD: lambda: run(standard),
        KERNEL: lambda: kernel_events_per_s(_KERNEL_EVENTS),
    }


def unchanging_work() -> Work:
    """SimPy by itself, and a walk through objects that no cache holds, as a run's are not."""
    objects = [[number, number] for number in range(_OBJECTS)]
    random.Random(0).shuffle(objects)

    def work() -> None:
        bare_simpy_events_per_s(_SIMPY_EVENTS)
        for pair in objects:
            pair[0] = pair[1] + 1

    return work


def ratio(work: Work, unchanging: Work) -> float:
    """Processor time of ``work`` over that of the unchanging work around it: a median."""
    ratios = []
    before_s = _cpu_s(unchanging)
    for _ in range(_TURNS):
        work_s, after_s = _cpu_s(work), _cpu_s(unchanging)
        ratios.append(work_s / min(before_s, after_s))  # one of the two may have been disturbed
        before_s = after_s
    return median(ratios)


def compare(works: Mapping[str, Work], unchanging: Work, record: Record) -> Iterator[Verdict]:
    """One verdict for each of ``works``; a loss has to be there in every round."""
    for name, work in works.items():
        rounds = (
            Verdict(name, record.ratios[name], ratio(work, unchanging)) for _ in range(_ROUNDS)
        )
        best = next(rounds)
        while not best.passed and (again := next(rounds, None)) is not None:
            best = min(best, again, key=lambda verdict: verdict.measured)
        yield best


def measure(works: Mapping[str, Work], unchanging: Work) -> Record:
    """What to compare with from now on."""
    ratios = {
        name: round(median(ratio(work, unchanging) for _ in range(_ROUNDS)), 3)
        for name, work in works.items()
    }
    return Record(_python(), ratios)


def read(path: Path, names: list[str]) -> Record:
    """The record in the file ``path``.

    Raises:
        UsageError: it is none, one of ``names`` is not in it, or it is of another Python.
    """
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"), source=str(path))
        record = msgspec.convert(document, Record)
    except (OSError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: is no record of ratios: {error}; {_REMEDY}") from error
    missing = [name for name in names if name not in record.ratios]
    if missing:
        raise UsageError(f"{path}: has no ratio of {', '.join(missing)}; {_REMEDY}")
    if record.python != _python():
        raise UsageError(
            f"{path}: its ratios are of Python {record.python}, this is {_python()}; use that one, "
            f"or {_REMEDY}"
        )
    return record


def write(path: Path, record: Record) -> None:
    """Keep ``record`` in the file ``path``."""
    heading = "# Processor time over that of unchanging work: faultlab bench --record-guard.\n"
    path.write_text(heading + print_yaml(msgspec.to_builtins(record)), encoding="utf-8")


def _cpu_s(work: Work) -> float:
    begin_s = cpu_clock()
    work()
    return cpu_clock() - begin_s


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])
