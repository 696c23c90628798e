"""Notices when the testbed becomes slower, on machines that differ and are busy.

Absolute times say little there. So each scenario takes turns with work that never changes, in one
process, and what is compared with a recorded figure is the ratio of their processor times: the
median of several, and again if that is too much, because only a real loss is there every time.
Memory that Python allocates hardly differs between machines, so its peak is compared as it is.
"""

from __future__ import annotations

import platform
import random
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from faults.bench.kernel import bare_simpy_events_per_s, kernel_events_per_s
from faults.bench.measure import cpu_clock
from faults.bench.scenarios import HYBRID, KERNEL, STANDARD, fixed_scenario
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
    """Ratios and peaks of memory by name, and the Python that they hold for, because each version
    has its own."""

    python: str
    ratios: dict[str, float]
    memory_mib: dict[str, float] = {}


@dataclass(frozen=True)
class Verdict:
    """How one scenario compares: ratios of processor time to the unchanging work's, or MiB."""

    name: str
    recorded: float
    measured: float

    @property
    def loss(self) -> float:
        """Of speed, or by growth; below 0 if it is quicker, or smaller, than it was."""
        return 1 - self.recorded / self.measured

    @property
    def passed(self) -> bool:
        return self.loss <= MOST_LOSS


def guarded() -> dict[str, Work]:
    """What is guarded, ready to be run, by name."""
    scenarios = {name: fixed_scenario(name) for name in (STANDARD, HYBRID)}
    for scenario in scenarios.values():
        rehearse(scenario)
    return {
        **{name: partial(run, scenario) for name, scenario in scenarios.items()},
        KERNEL: partial(kernel_events_per_s, _KERNEL_EVENTS),
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


def compare_memory(works: Mapping[str, Work], record: Record) -> Iterator[Verdict]:
    """One verdict for each of ``works``, of its peak."""
    for name, work in works.items():
        yield Verdict(name, record.memory_mib[name], peak_mib(work))


def peak_mib(work: Work) -> float:
    """The most memory that Python has allocated for ``work`` at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def measure(works: Mapping[str, Work], unchanging: Work) -> Record:
    """What to compare with from now on."""
    ratios = {
        name: round(median(ratio(work, unchanging) for _ in range(_ROUNDS)), 3)
        for name, work in works.items()
    }
    peaks = {name: round(peak_mib(work), 2) for name, work in works.items()}
    return Record(_python(), ratios, peaks)


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
    for what, known in (("ratio", record.ratios), ("peak of memory", record.memory_mib)):
        if missing := [name for name in names if name not in known]:
            raise UsageError(f"{path}: has no {what} of {', '.join(missing)}; {_REMEDY}")
    if record.python != _python():
        raise UsageError(
            f"{path}: its ratios are of Python {record.python}, this is {_python()}; use that one, "
            f"or {_REMEDY}"
        )
    return record


def write(path: Path, record: Record) -> None:
    """Keep ``record`` in the file ``path``."""
    heading = (
        "# Processor time over that of unchanging work, and peaks of what Python allocates:\n"
        "# faultlab bench --record-guard.\n"
    )
    path.write_text(heading + print_yaml(msgspec.to_builtins(record)), encoding="utf-8")


def _cpu_s(work: Work) -> float:
    begin_s = cpu_clock()
    work()
    return cpu_clock() - begin_s


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])
