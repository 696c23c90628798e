"""What a campaign keeps of one seed, and of all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from faults.cells import possible_phases
from faults.coverage import Coverage, Table, holes, merge
from faults.kinds import KINDS
from sim.oracles import Violation

Status = Literal["passed", "failed", "refused", "error"]
_PLACE = re.compile(r"(?P<module>.+):\d+ in (?P<name>.+)")


class Failure(msgspec.Struct, frozen=True):
    """One group that a run fell into, with the words of its first violation."""

    group: str
    oracle: str
    detail: str


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``refused``: engines did not start, or refused one that was configured unlike them;
    ``error``: the testbed failed, or its process died or hung, and ``detail`` says how."""

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


def failures_of(violations: Iterable[Violation]) -> list[Failure]:
    """One for each group, with its first violation."""
    first: dict[str, Failure] = {}
    for violation in violations:
        group = group_of(violation)
        first.setdefault(group, Failure(group, violation.oracle, violation.detail))
    return [first[group] for group in sorted(first)]


def summarize(
    results: Sequence[SeedResult],
    known: Sequence[str],
    *,
    seeds: range,
    wall_s: float,
    interrupted: bool,
) -> dict[str, Any]:
    """The JSON document of a campaign that was to run ``seeds``."""
    ordered = sorted(results, key=lambda result: result.seed)
    counts = {status: sum(r.status == status for r in ordered) for status in STATUSES}
    every_kind = Coverage().table(name for name in KINDS if possible_phases(name))
    coverage = merge([every_kind, *(result.coverage for result in ordered)])
    groups = _groups(ordered, known)
    return {
        "runs": len(ordered),
        "passed": counts["passed"],
        "failed": counts["failed"],
        "refused": counts["refused"],
        "errors": counts["error"],
        "failing_seeds": [r.seed for r in ordered if r.status == "failed"],
        "error_seeds": [
            {"seed": r.seed, "detail": r.detail} for r in ordered if r.status == "error"
        ],
        "by_oracle": _by_oracle(ordered),
        "groups": groups,
        "new_groups": [group["group"] for group in groups if not group["known"]],
        "fault_coverage": coverage,
        "holes": [list(hole) for hole in holes(coverage)],
        "wall_s": wall_s,
        "runs_per_s": len(ordered) / wall_s if wall_s else 0.0,
        "interrupted": interrupted,
        "not_run": len(set(seeds) - {result.seed for result in ordered}),
    }


STATUSES: tuple[Status, ...] = ("passed", "failed", "refused", "error")


def _by_oracle(results: Iterable[SeedResult]) -> dict[str, int]:
    """How many runs broke each rule."""
    counts: dict[str, int] = {}
    for result in results:
        for oracle in sorted({failure.oracle for failure in result.failures}):
            counts[oracle] = counts.get(oracle, 0) + 1
    return dict(sorted(counts.items()))


def _groups(results: Iterable[SeedResult], known: Sequence[str]) -> list[dict[str, Any]]:
    """Each with its smallest seed, whose artifact and words stand for it."""
    groups: dict[str, dict[str, Any]] = {}
    for result in results:
        for failure in result.failures:
            entry = groups.setdefault(
                failure.group,
                {
                    "group": failure.group,
                    "known": failure.group in known,
                    "smallest_seed": result.seed,
                    "seeds": 0,
                    "detail": failure.detail,
                    "artifact": None,
                },
            )
            entry["seeds"] += 1
            entry["artifact"] = entry["artifact"] or result.artifact
    return sorted(groups.values(), key=lambda entry: (-entry["seeds"], entry["group"]))
