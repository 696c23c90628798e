"""Two campaigns on the same seeds as a page: what is new, what is fixed, and what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup

from faults.campaign.compare import compare, drawn_alike
from faults.campaign.result import STATUSES, Status
from faults.report.campaign_page import Campaign, seed_list
from faults.report.page import render
from faults.report.plots import shares
from sim.errors import UsageError

_MOST_ENTRIES = 100
_KINDS = ("new", "fixed", "unchanged", "unjudged")


@dataclass(frozen=True)
class Entry:
    """A group on both sides: in how many of the compared seeds, and in which."""

    group: str
    detail: str
    counts: tuple[int, int]
    seeds: tuple[str, str]


def comparison_page(a: Path, b: Path) -> str:
    """The page.

    Raises:
        UsageError: one is no campaign, or they have no seed in common.
    """
    sides = (Campaign.read(a), Campaign.read(b))
    is_alike = drawn_alike(sides[0].plan.options, sides[1].plan.options)
    seeds = {seed for seed in _seeds(sides[0]) & _seeds(sides[1]) if is_alike(seed)}
    compared = compare(sides[0].results, sides[1].results, seeds.__contains__)
    if not compared["compared"]:
        raise UsageError(
            f"{a} and {b} have no seed in common that ran on both sides and is the same scenario; "
            "give two campaigns with the same --seeds, or both sides of faultlab compare"
        )
    return render(
        "comparison.html",
        sides=sides,
        compared=compared["compared"],
        drawn_otherwise=compared["drawn_otherwise"],
        kinds=[(kind, _entries(compared[kind])) for kind in _KINDS],
        statuses=STATUSES,
        crossed=crossed(*sides, seeds),
        differences=differences(*sides),
        plots=_plots(sides, seeds),
        most=_MOST_ENTRIES,
    )


def _seeds(side: Campaign) -> set[int]:
    return {result.seed for result in side.results}


def crossed(a: Campaign, b: Campaign, seeds: set[int]) -> list[tuple[Status, list[int]]]:
    """For each way of ending in ``a``, how many of ``seeds`` ended in which way in ``b``."""
    in_b = {result.seed: result.status for result in b.results if result.seed in seeds}
    pairs = Counter(
        (result.status, in_b[result.seed]) for result in a.results if result.seed in in_b
    )
    return [(one, [pairs[one, other] for other in STATUSES]) for one in STATUSES]


def differences(a: Campaign, b: Campaign) -> list[tuple[str, str, str]]:
    """Options, settings and versions that are not the same: name, of ``a``, of ``b``."""
    given = [
        {
            **msgspec.to_builtins(side.plan.options),
            "settings": "",
            **{f"--set {key}": text for key, text in side.plan.options.settings.items()},
            "seeds": f"{side.plan.first}:{side.plan.end}",
            **{f"version of {name}": text for name, text in side.plan.versions.items()},
        }
        for side in (a, b)
    ]
    keys = dict.fromkeys([*given[0], *given[1]])
    pairs = [(key, *(str(side.get(key, "not given")) for side in given)) for key in keys]
    return [(key, one, other) for key, one, other in pairs if one != other]


def _entries(entries: Sequence[dict[str, Any]]) -> list[Entry]:
    return [
        Entry(
            entry["group"],
            entry["detail"],
            (len(entry["seeds_before"]), len(entry["seeds_after"])),
            (seed_list(entry["seeds_before"]), seed_list(entry["seeds_after"])),
        )
        for entry in entries
    ]


def _plots(sides: Sequence[Campaign], seeds: set[int]) -> list[Markup]:
    return [
        shares(
            [
                (side.title, [getattr(r, field) for r in side.results if r.seed in seeds])
                for side in sides
            ],
            f"share of the runs of both sides that took at most so many {what} seconds",
        )
        for field, what in (("virtual_s", "virtual"), ("wall_s", "real"))
    ]
