"""What a campaign keeps of one seed, and of all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import msgspec

from faults.cells import possible_phases
from faults.coverage import Coverage, Table, holes, merge
from faults.kinds import KINDS
from sim.lifecycle import Phase
from sim.oracles import Violation

Status = Literal["passed", "failed", "refused", "failed-closed", "error"]
MEANINGS = {
    "refused": "an engine did not start, or refused one that was configured unlike it",
    "failed-closed": "an engine ended its step rather than use what was not loaded, and vLLM left "
    "it no other way",
}
"""Of seeds that are neither passed nor failed."""
_NUMBERS = re.compile(r"\d[\d.]*")
_PLACE = re.compile(r"(?P<module>.+):\d+ in (?P<name>.+)")


class Failure(msgspec.Struct, frozen=True):
    """One group that a run fell into, with the words of its first violation."""

    group: str
    oracle: str
    detail: str


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run, and how it ended.

    ``refused``: engines did not start, or refused one that was configured unlike them;
    ``failed-closed``: an engine ended its step rather than use what was not loaded; ``error``: the
    testbed failed, or its process died or hung. ``detail`` says how.
    """

    seed: int
    status: Status
    failures: list[Failure] = []
    coverage: Table = {}
    event_hash: str = ""
    wall_s: float = 0.0
    virtual_s: float = 0.0
    detail: str = ""
    artifact: str | None = None


def group_of(violation: Violation) -> str:
    """What failed, and where: oracle, kind, side, and the place in the code if there is one.

    Without line numbers, ids and times, so that the group stays when code is edited.
    """
    words = [violation.oracle]
    kind = violation.evidence.get("kind")
    if kind:
        words.append(str(kind))
    traceback: Sequence[str] = violation.evidence.get("traceback") or ()
    place = _PLACE.fullmatch(traceback[0]) if traceback else None
    if place:
        words.append(f"{place['module']}.{place['name']}")
    elif violation.node:
        words.append("producer" if violation.node.startswith("p") else "consumer")
    return "/".join(words)


def reason_of(result: SeedResult) -> str:
    """Why a seed was refused or failed closed, whatever the numbers in it."""
    return _NUMBERS.sub("N", result.detail)


def failures_of(violations: Iterable[Violation]) -> list[Failure]:
    """One for each group, with its first violation."""
    first: dict[str, Failure] = {}
    for violation in violations:
        group = group_of(violation)
        first.setdefault(group, Failure(group, violation.oracle, violation.detail))
    return [first[group] for group in sorted(first)]


def summarize(
    results: Iterable[SeedResult],
    known: Sequence[str],
    *,
    seeds: range,
    wall_s: float,
    interrupted: bool,
    lost: Sequence[int] = (),
    earlier: int = 0,
) -> dict[str, Any]:
    """The JSON document of a campaign that was to run ``seeds``.

    ``lost`` are those that have no result, though nothing says that there was no time for them.
    ``earlier`` is how many of the results were there before ``wall_s`` began to run.
    Results come in any order, each seed once; none is held on to.
    """
    tally = _Tally(known)
    every_kind = Coverage().table(name for name in KINDS if possible_phases(name))
    coverage = merge(chain([every_kind], map(tally.count, results)))
    runs = sum(tally.statuses.values())
    groups = sorted(tally.groups.values(), key=lambda entry: (-entry["seeds"], entry["group"]))
    return {
        "runs": runs,
        "runs_earlier": earlier,
        "passed": tally.statuses["passed"],
        "failed": tally.statuses["failed"],
        "refused": tally.statuses["refused"],
        "failed_closed": tally.statuses["failed-closed"],
        "errors": tally.statuses["error"],
        "unserved": sorted(
            tally.unserved.values(), key=lambda entry: (-entry["seeds"], entry["smallest_seed"])
        ),
        "failing_seeds": sorted(tally.failing),
        "error_seeds": [
            {"seed": seed, "detail": detail} for seed, detail in sorted(tally.errors.items())
        ],
        "by_oracle": dict(sorted(tally.by_oracle.items())),
        "groups": groups,
        "new_groups": [group["group"] for group in groups if not group["known"]],
        "fault_coverage": coverage,
        "holes": [list(hole) for hole in holes(coverage)],
        "reads_under_fault": {
            kind: reads
            for kind, row in coverage.items()
            if (reads := sum(row.get(phase, 0) for phase in _READING))
        },
        "failing_share_below": tally.failing_share_below(),
        "wall_s": wall_s,
        "runs_per_s": (runs - earlier) / wall_s if wall_s else 0.0,
        "interrupted": interrupted,
        "not_run": len(seeds) - runs,
        "lost_seeds": list(lost),
    }


def tested_nothing(document: Mapping[str, Any]) -> bool:
    """Whether all that was run was refused."""
    return bool(document["runs"]) and document["refused"] == document["runs"]


STATUSES: tuple[Status, ...] = get_args(Status)
_RULE_OF_THREE_FROM = 30  # runs; 0.4 percentage points too much there
_READING: tuple[Phase, ...] = ("read_posted", "read_in_flight")


class _Tally:
    """What is left of results that are counted one by one."""

    def __init__(self, known: Sequence[str]) -> None:
        self.statuses = Counter[str]()
        self.failing: list[int] = []
        self.errors: dict[int, str] = {}
        self.unserved: dict[tuple[str, str], dict[str, Any]] = {}
        """By status and reason, what was refused or failed closed, with the smallest seed."""
        self.by_oracle = Counter[str]()
        """How many runs broke each rule."""
        self.groups: dict[str, dict[str, Any]] = {}
        """Each with its smallest seed, whose words stand for it, and the first artifact."""
        self._known = known
        self._artifact_seeds: dict[str, int] = {}

    def count(self, result: SeedResult) -> Table:
        """Count a result, and return what it covered."""
        self.statuses[result.status] += 1
        if result.status == "failed":
            self.failing.append(result.seed)
        if result.status == "error":
            self.errors[result.seed] = result.detail
        if result.status in MEANINGS:
            self._count_unserved(result)
        self.by_oracle.update({failure.oracle for failure in result.failures})
        for failure in result.failures:
            self._count_in_group(failure, result)
        return result.coverage

    def failing_share_below(self) -> float | None:
        """The share of such seeds that fail is below this, with 95 % confidence.

        The rule of three: 3/n, where n runs were judged and none failed but in excused groups. None
        where one did, an error leaves open whether it would have, or n is too small for the rule.
        """
        judged = sum(self.statuses[status] for status in ("passed", "failed", "failed-closed"))
        is_clean = all(entry["known"] for entry in self.groups.values())
        return (
            3 / judged if judged >= _RULE_OF_THREE_FROM and is_clean and not self.errors else None
        )

    def _count_unserved(self, result: SeedResult) -> None:
        entry = self.unserved.setdefault(
            (result.status, reason_of(result)),
            {"status": result.status, "seeds": 0, "smallest_seed": result.seed, "detail": ""},
        )
        entry["seeds"] += 1
        if result.seed <= entry["smallest_seed"]:
            entry |= {"smallest_seed": result.seed, "detail": result.detail}

    def _count_in_group(self, failure: Failure, result: SeedResult) -> None:
        entry = self.groups.setdefault(
            failure.group,
            {
                "group": failure.group,
                "known": failure.group in self._known,
                "smallest_seed": result.seed,
                "seeds": 0,
                "detail": failure.detail,
                "artifact": None,
            },
        )
        entry["seeds"] += 1
        if result.seed < entry["smallest_seed"]:
            entry |= {"smallest_seed": result.seed, "detail": failure.detail}
        with_artifact = self._artifact_seeds.get(failure.group)
        if result.artifact and (with_artifact is None or result.seed < with_artifact):
            entry["artifact"] = result.artifact
            self._artifact_seeds[failure.group] = result.seed
