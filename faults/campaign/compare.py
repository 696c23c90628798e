"""The same seeds on two sides, before and after a change: which failures came, and which went.

Only seeds that say something about both sides are compared. A campaign takes a start that is
refused, or a step that is ended, for no failure, as it judges a connector by itself. A change is
judged by what there was: a seed that is no longer served, though it passed, is a failure here, and
one that is served for the first time, and passes, is mended. A seed that failed, and is refused
now, is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from faults.campaign.result import Failure, SeedResult, reason_of
from faults.campaign.swarm import SwarmOptions, scenario_of

NOT_SERVED: dict[str, str] = {"refused": "start-refused", "failed-closed": "failed-closed"}
"""By how a seed ended, the group that it falls into."""

_Side = dict[int, SeedResult]
_Alike = Callable[[int], bool]


def compare(
    before: Iterable[SeedResult], after: Iterable[SeedResult], is_alike: _Alike = lambda seed: True
) -> dict[str, Any]:
    """Groups of failures that are new, fixed, unchanged or unjudged, and the seeds that could not
    be told.

    A group is new if no compared seed fell into it before, and fixed if none does after; unjudged,
    if just none of its seeds is served after. Groups of ``NOT_SERVED`` hold the seeds that passed
    on the other side; such a group is new and fixed at once if some seeds came and others went.
    Seeds that are another scenario on each side (not ``is_alike``) are left out.
    """
    sides = [{result.seed: result for result in results} for results in (before, after)]
    errors = [
        {"seed": result.seed, "side": name, "detail": result.detail}
        for name, side in zip(("before", "after"), sides, strict=True)
        for result in sorted(side.values(), key=lambda result: result.seed)
        if result.status == "error"
    ]
    unusable = {error["seed"] for error in errors}
    shared = sorted((sides[0].keys() & sides[1].keys()) - unusable)
    seeds = [seed for seed in shared if is_alike(seed)]
    old, new = ({seed: side[seed] for seed in seeds} for side in sides)
    groups = [_entry(group, old, new) for group in _groups(old, new)]
    gone = [entry for entry in groups if not entry["seeds_after"]]
    lost, won = _unserved(old, new), _unserved(new, old)
    return {
        "compared": len(seeds),
        "drawn_otherwise": len(shared) - len(seeds),
        "new": [
            *(entry for entry in groups if not entry["seeds_before"]),
            *(_unserved_entry(group, [], found) for group, found in lost.items()),
        ],
        "fixed": [
            *(entry for entry in gone if _is_judged(entry)),
            *(_unserved_entry(group, found, []) for group, found in won.items()),
        ],
        "unchanged": [e for e in groups if e["seeds_before"] and e["seeds_after"]],
        "unjudged": [entry for entry in gone if not _is_judged(entry)],
        "not_served": {"before": _not_served(old), "after": _not_served(new)},
        "errors": errors,
    }


def drawn_alike(before: SwarmOptions, after: SwarmOptions) -> _Alike:
    """Whether a seed is the same scenario on both sides but for what is compared.

    Some things are drawn only for connectors that can do them, unless the options name the other
    one (``beside``); what comes of those says nothing about a connector that cannot.
    """
    if before.connector == after.connector:
        return lambda seed: True
    return partial(_is_drawn_alike, before, after)


def _is_drawn_alike(before: SwarmOptions, after: SwarmOptions, seed: int) -> bool:
    one, other = (
        msgspec.structs.replace(
            scenario_of(seed, options), connector=before.connector, overlay=None
        )
        for options in (before, after)
    )
    return one == other


def _groups(*sides: _Side) -> list[str]:
    return sorted({f.group for side in sides for result in side.values() for f in result.failures})


def _entry(group: str, before: _Side, after: _Side) -> dict[str, Any]:
    """One group, with the words and the artifact of its smallest seed, after if it is there."""
    hits = [dict(_hits(group, side)) for side in (before, after)]
    side, found = (after, hits[1]) if hits[1] else (before, hits[0])
    first, gone = min(found), sorted(() if hits[1] else hits[0])
    return {
        "group": group,
        "seeds_before": sorted(hits[0]),
        "seeds_after": sorted(hits[1]),
        "smallest_seed": first,
        "detail": found[first].detail,
        "artifact": next((a for seed in sorted(found) if (a := side[seed].artifact)), None),
        "not_served_after": [seed for seed in gone if after[seed].status in NOT_SERVED],
    }


def _hits(group: str, side: _Side) -> Iterator[tuple[int, Failure]]:
    for seed, result in side.items():
        for failure in result.failures:
            if failure.group == group:
                yield seed, failure


def _is_judged(gone: dict[str, Any]) -> bool:
    """Whether any seed of a group that is gone is served now."""
    return bool(set(gone["seeds_before"]) - set(gone["not_served_after"]))


def _unserved(served: _Side, other: _Side) -> dict[str, list[SeedResult]]:
    """By group, the results of ``other`` for seeds that passed in ``served`` only."""
    found: dict[str, list[SeedResult]] = {}
    for seed, result in other.items():
        group = NOT_SERVED.get(result.status)
        if group and served[seed].status == "passed":
            found.setdefault(group, []).append(result)
    return dict(sorted(found.items()))


def _unserved_entry(
    group: str, before: Sequence[SeedResult], after: Sequence[SeedResult]
) -> dict[str, Any]:
    """The seeds that one side does not serve, and each reason as its smallest seed says it."""
    found = [*before, *after]
    reasons: dict[str, dict[str, Any]] = {}
    for result in found:
        reason = {"seeds": 0, "smallest_seed": result.seed, "detail": result.detail}
        reasons.setdefault(reason_of(result), reason)["seeds"] += 1
    return {
        "group": group,
        "seeds_before": [result.seed for result in before],
        "seeds_after": [result.seed for result in after],
        "smallest_seed": found[0].seed,
        "detail": found[0].detail,
        "artifact": None,
        "not_served_after": [],
        "reasons": list(reasons.values()),
    }


def _not_served(side: _Side) -> dict[str, int]:
    return {s: sum(r.status == s for r in side.values()) for s in NOT_SERVED}
