"""The same seeds on two sides, before and after a change: which failures came, and which went.

Only seeds that say something about both sides are compared. A start that is refused, or a step that
was ended, is a failure like others here, because it may be what the change has brought.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from faults.campaign.result import Failure, SeedResult

_NOT_SERVED: dict[str, str] = {"refused": "start-refused", "failed-closed": "failed-closed"}


def compare(before: Sequence[SeedResult], after: Sequence[SeedResult]) -> dict[str, Any]:
    """Groups of failures that are new, fixed or unchanged, and the seeds that could not be told.

    A group is new if no compared seed fell into it before, and fixed if none does after.
    """
    sides = [{result.seed: result for result in results} for results in (before, after)]
    errors = [
        {"seed": result.seed, "side": name, "detail": result.detail}
        for name, side in zip(("before", "after"), sides, strict=True)
        for result in sorted(side.values(), key=lambda result: result.seed)
        if result.status == "error"
    ]
    unusable = {error["seed"] for error in errors}
    seeds = sorted((sides[0].keys() & sides[1].keys()) - unusable)
    old, new = ({seed: side[seed] for seed in seeds} for side in sides)
    groups = [_entry(group, old, new) for group in _groups(old, new)]
    return {
        "compared": len(seeds),
        "new": [entry for entry in groups if not entry["seeds_before"]],
        "fixed": [entry for entry in groups if not entry["seeds_after"]],
        "unchanged": [e for e in groups if e["seeds_before"] and e["seeds_after"]],
        "errors": errors,
    }


def _groups(*sides: dict[int, SeedResult]) -> list[str]:
    found = {f.group for side in sides for result in side.values() for f in _failures(result)}
    return sorted(found)


def _entry(
    group: str, before: dict[int, SeedResult], after: dict[int, SeedResult]
) -> dict[str, Any]:
    """One group, with the words and the artifact of its smallest seed, after if it is there."""
    hits = [dict(_hits(group, side)) for side in (before, after)]
    side, found = (after, hits[1]) if hits[1] else (before, hits[0])
    first = min(found)
    return {
        "group": group,
        "seeds_before": sorted(hits[0]),
        "seeds_after": sorted(hits[1]),
        "detail": found[first].detail,
        "artifact": next((a for seed in sorted(found) if (a := side[seed].artifact)), None),
    }


def _hits(group: str, side: dict[int, SeedResult]) -> Iterator[tuple[int, Failure]]:
    for seed, result in side.items():
        for failure in _failures(result):
            if failure.group == group:
                yield seed, failure


def _failures(result: SeedResult) -> list[Failure]:
    if name := _NOT_SERVED.get(result.status):
        return [Failure(name, name, result.detail)]
    return result.failures
