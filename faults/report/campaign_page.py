"""A campaign as a page: what it added up to, where faults struck, what failed and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from faults.campaign import store
from faults.campaign.command import campaign_line
from faults.campaign.merge import at_home
from faults.campaign.plan import Plan
from faults.campaign.result import MEANINGS, SeedResult, summarize
from faults.report.heat_map import HeatMap, heat_map
from faults.report.page import render
from faults.report.plots import histogram, seeds_plot, throughput
from faults.report.run_section import RunSection, run_section
from sim.errors import UsageError
from sim.oracles.words import block_list

_MOST_RUNS, _MOST_DRAWN = 40, 12
_MOST_GROUPS, _MOST_ERRORS = 200, 10


@dataclass(frozen=True)
class Group:
    """A group of failures; ``run`` names the section about its run, if there is one."""

    name: str
    is_known: bool
    runs: int
    seeds: str
    detail: str
    run: str | None


@dataclass(frozen=True)
class Campaign:
    """``document`` is the JSON of faultlab campaign; results are in the order they came in."""

    directory: Path
    plan: Plan
    results: list[SeedResult]
    document: dict[str, Any]

    @classmethod
    def read(cls, directory: Path, known: Sequence[str] = ()) -> Campaign:
        """The campaign in ``directory``; UsageError if there is none."""
        plan, found = store.read(directory)
        results = [at_home(result, directory) for result in found]
        wall_s = sum(result.wall_s for result in results)
        document = summarize(results, known, seeds=plan.seeds, wall_s=wall_s, interrupted=False)
        return cls(directory, plan, results, document)

    @property
    def title(self) -> str:
        return f"{self.plan.options.connector}, seeds {self.plan.first} to {self.plan.end - 1}"

    @property
    def meanings(self) -> dict[str, str]:
        """What the statuses say that are neither passed nor failed."""
        return MEANINGS

    @property
    def command(self) -> str:
        """A line that would run it again; options that are as by default are left out."""
        plan = self.plan
        shard = ("--shard", plan.part) if plan.shard != (1, 1) else ()
        return campaign_line(plan.options, f"{plan.first}:{plan.end}", *shard)

    @property
    def heat_map(self) -> HeatMap:
        return heat_map(self.document["fault_coverage"])

    def plots(self) -> list[Markup]:
        """How runs ended, how long they took, and how many there were in a minute."""
        return [
            seeds_plot(self.results),
            histogram(self.results, "virtual_s", "virtual seconds that runs took"),
            histogram(self.results, "wall_s", "real seconds that runs took"),
            throughput(self.results),
        ]


def campaign_page(directory: Path, known: Sequence[str] = ()) -> str:
    """The page; ``known`` are groups that are excused. UsageError if there is no campaign."""
    campaign = Campaign.read(directory, known)
    runs, unread = _runs(campaign.document["groups"])
    shown = {run.name for run in runs}
    groups = _groups(campaign, shown)
    return render(
        "campaign.html",
        campaign=campaign,
        groups=groups[:_MOST_GROUPS],
        more_groups=max(len(groups) - _MOST_GROUPS, 0),
        errors=campaign.document["error_seeds"][:_MOST_ERRORS],
        more_errors=max(campaign.document["errors"] - _MOST_ERRORS, 0),
        runs=runs,
        unread=unread,
    )


def _runs(groups: Sequence[dict[str, Any]]) -> tuple[list[RunSection], list[str]]:
    """The runs that stand for groups, the most frequent first, and why some cannot be shown."""
    kept = dict.fromkeys(group["artifact"] for group in groups if group["artifact"])
    runs: list[RunSection] = []
    unread = []
    for path in list(kept)[:_MOST_RUNS]:
        try:
            runs.append(run_section(Path(path), drawn=len(runs) < _MOST_DRAWN))
        except UsageError as error:
            unread.append(str(error))
    return runs, unread


def _groups(campaign: Campaign, shown: set[str]) -> list[Group]:
    seeds: dict[str, list[int]] = {}
    for result in campaign.results:
        for failure in result.failures:
            seeds.setdefault(failure.group, []).append(result.seed)
    return [
        Group(
            name=entry["group"],
            is_known=entry["known"],
            runs=entry["seeds"],
            seeds=seed_list(seeds[entry["group"]]),
            detail=entry["detail"],
            run=name if (name := Path(entry["artifact"] or "").name) in shown else None,
        )
        for entry in campaign.document["groups"]
    ]


def seed_list(seeds: Sequence[int]) -> str:
    """The seeds in words, as few as can be."""
    if not seeds:
        return "none"
    return block_list(sorted(seeds)).partition(" ")[2].replace(" more runs", " more")
