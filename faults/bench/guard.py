"""Notices when the testbed becomes slower, on machines that differ and are busy.

Absolute times say little there. So each scenario takes turns with work that never changes, in one
process, and what is compared with a recorded figure is the ratio of their processor times: the
median of several, and again if that is too much, because only a real loss is there every time.
A ratio holds for one kind of processor, since work that is unlike gains unlike from another, so
there is a record for each; ``against.py`` needs none. Memory that Python allocates hardly differs
between machines, so its peak is compared as it is.
"""

from __future__ import annotations

import platform
import random
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from faults.bench import processor
from faults.bench.kernel import bare_simpy_events_per_s, kernel_events_per_s
from faults.bench.measure import cpu_clock
from faults.bench.scenarios import HYBRID, KERNEL, STANDARD, fixed_scenario
from sim.errors import UsageError
from sim.run import rehearse, run
from sim.scenario.yaml_text import parse_yaml, print_yaml

MOST_LOSS = 0.20
"""Of speed."""
NAMES = (STANDARD, HYBRID, KERNEL)
"""What is guarded."""
RECORDED = Path(__file__).with_name("guard.yaml")
_TURNS, _ROUNDS = 7, 3
_SIMPY_EVENTS, _KERNEL_EVENTS, _OBJECTS = 20_000, 20_000, 100_000
_REMEDY = "record them anew with `faultlab bench --record-guard`"

Work = Callable[[], object]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ratios and peaks of memory by name, of one kind of processor, and the Python that they hold
    for, because each version has its own."""

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
    """The work of `NAMES`, ready to be run."""
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


def read(path: Path, names: Sequence[str]) -> Record:
    """The record for this kind of processor in the file ``path``.

    Raises:
        UsageError: the file has none, one of ``names`` is not in it, or it is of another Python.
    """
    records, here = _records(path), processor.kind()
    if here not in records:
        raise UsageError(
            f"{path}: has no record for {here}, and that of another kind of processor "
            f"({', '.join(records) or 'none is there'}) does not hold for it; compare two versions "
            "on this machine with `faultlab bench --guard --against DIR`, or, if nothing else runs "
            f"here, {_REMEDY}"
        )
    record = records[here]
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
    """Keep ``record`` in the file ``path`` for this kind of processor, beside those for others."""
    try:
        others = _records(path)
    except UsageError:  # what is no record cannot be kept
        others = {}
    heading = (
        "# Processor time over that of unchanging work, and peaks of what Python allocates, for\n"
        "# each kind of processor: faultlab bench --record-guard.\n"
    )
    document = msgspec.to_builtins({**others, processor.kind(): record})
    path.write_text(heading + print_yaml(document), encoding="utf-8")


def _records(path: Path) -> dict[str, Record]:
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"), source=str(path))
        return msgspec.convert(document, dict[str, Record])
    except (OSError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: is no record of ratios: {error}; {_REMEDY}") from error


def _cpu_s(work: Work) -> float:
    begin_s = cpu_clock()
    work()
    return cpu_clock() - begin_s


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])
