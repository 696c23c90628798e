"""``faultlab compare``: my patch against what there was, on the same seeds."""

from __future__ import annotations

import json as json_text
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from faults.campaign.campaign import Campaign, begin
from faults.campaign.command import kept_seed_line, seed_line
from faults.campaign.compare import NOT_SERVED, compare
from faults.campaign.junit import require_writable, write_junit
from faults.campaign.plan import plan_here
from faults.campaign.pool import Pool
from faults.campaign.seeds import parse_seeds
from faults.campaign.store import Store
from faults.campaign.swarm import DEFAULT_MODELS, SwarmOptions
from faults.cli.campaign import Jobs, Model, Out, Resume, SeedLimit, Seeds, Settings, progress
from faults.cli.campaign_summary import Junit, Known, excused_groups
from faults.cli.comparison_summary import exit_code, render
from faults.cli.options import setting_pairs
from faults.cli.outcome import JsonFlag, Outcome
from faults.directories import SIDES
from faults.wording import replay_line
from sim.errors import UsageError

Connectors = Annotated[
    list[str],
    typer.Option(metavar="NAME", help="Give two: before and after; or one, with an overlay."),
]
Overlay = Annotated[
    Path | None, typer.Option(help="Sources of the side after, such as a patched checkout.")
]
BeforeOverlay = Annotated[Path | None, typer.Option(help="Sources of the side before.")]


def command(
    seeds: Seeds,
    connector: Connectors,
    overlay: Overlay = None,
    before_overlay: BeforeOverlay = None,
    model: Model = None,
    setting: Settings = None,
    jobs: Jobs = None,
    seed_limit: SeedLimit = 600.0,
    known: Known = None,
    junit: Junit = None,
    out: Out = None,
    resume: Resume = False,
    json: JsonFlag = False,
) -> Outcome:
    """Run the same seeds before and after a change; say which failures are new, and which gone.

    With --out, results and failing runs of both sides are kept, in before and after. --junit is
    about the side after; a seed whose groups are known, or not new, is skipped in it.

    \b
    Examples:
      faultlab compare --seeds 100 --connector moriio --overlay ~/vllm
      faultlab compare --seeds 100 --connector moriio --connector hybrid
      faultlab compare --seeds 50 --connector moriio --before-overlay ~/main --overlay ~/patch

    A seed that passed before and is refused now, or failed closed, is new: start-refused, or
    failed-closed. One that failed before is not.

    Exit code 0: no new group of failures, or known ones only; 1: a new one; 2: bad usage, or all
    seeds were refused after; 3: none is new, but the testbed failed, or a worker died or hung, in
    some run; 130: Ctrl-C ended it (143: SIGTERM did), and none is new.
    """
    shared = SwarmOptions(
        models=tuple(model or DEFAULT_MODELS), settings=setting_pairs(setting or ())
    )
    sides = _sides(shared, connector, (before_overlay, overlay))
    plans = [plan_here(side, parse_seeds(seeds), (1, 1)) for side in sides]
    excused = excused_groups(known)
    require_writable(junit)
    campaigns = []
    with ExitStack() as stack:
        for name, plan in zip(SIDES, plans, strict=True):
            store = Store(None if out is None else out / name, plan, resume=resume)
            campaigns.append(Campaign(stack.enter_context(store)))
        pool = stack.enter_context(Pool(jobs or os.cpu_count() or 1, seed_limit))
        canary = begin(pool, *campaigns)
        for name, campaign in zip(SIDES, campaigns, strict=True):
            if any(each.interrupted for each in campaigns):
                break
            with progress(len(campaign.store.plan.seeds), name) as on_result:
                campaign.run(pool, None, on_result)
    document = {**_document(sides, campaigns, excused), "canary": canary}
    if junit is not None:
        _write_junit(junit, document, campaigns[1], excused)
    return Outcome(document, partial(render, document, out), exit_code(document))


def _write_junit(
    path: Path, document: dict[str, Any], after: Campaign, excused: Sequence[str]
) -> None:
    old = [entry["group"] for entry in document["unchanged"]]
    unserved = {
        seed: entry["group"]
        for entry in document["new"]
        if entry["group"] in NOT_SERVED.values()
        for seed in entry["seeds_after"]
    }
    write_junit(
        path,
        after.store.results(),
        [*excused, *old],
        after.document()["not_run"],
        command="compare",
        unserved=unserved,
    )


def _sides(
    shared: SwarmOptions, connectors: list[str], overlays: tuple[Path | None, Path | None]
) -> list[SwarmOptions]:
    """What runs before and after; UsageError unless there are two sides, and they differ."""
    if len(connectors) > 2:
        raise UsageError(
            f"--connector is given {len(connectors)} times; give it once, or twice: before, after"
        )
    before, after = connectors[0], connectors[-1]
    if before == after and overlays[0] == overlays[1]:
        raise UsageError(
            f"both sides are {before} with the same sources; give a second --connector, or an "
            "--overlay"
        )
    sides = []
    others = (after, before) if before != after else (None, None)
    for name, beside, overlay in zip((before, after), others, overlays, strict=True):
        added = {} if overlay is None else {"overlay": json_text.dumps(str(overlay.resolve()))}
        sides.append(
            msgspec.structs.replace(
                shared, connector=name, beside=beside, settings={**shared.settings, **added}
            )
        )
    return sides


def _document(
    sides: list[SwarmOptions], campaigns: list[Campaign], known: list[str]
) -> dict[str, Any]:
    before, after = (list(campaign.store.results()) for campaign in campaigns)
    seeds = campaigns[0].store.plan.seeds
    compared = compare(before, after)
    shown_by = {"new": sides[1], "fixed": sides[0], "unchanged": sides[1], "unjudged": sides[0]}
    for kind, side in shown_by.items():
        for entry in compared[kind]:
            entry["run_again"] = _again(entry, side)
    return {
        **{
            name: {"connector": side.connector, "overlay": side.settings.get("overlay")}
            for name, side in zip(SIDES, sides, strict=True)
        },
        "seeds": len(seeds),
        "passed": {
            name: sum(result.status == "passed" for result in results)
            for name, results in zip(SIDES, (before, after), strict=True)
        },
        **compared,
        "known": [entry["group"] for entry in compared["new"] if entry["group"] in known],
        "not_run": len(seeds) - compared["compared"] - len({e["seed"] for e in compared["errors"]}),
        "interrupted": any(campaign.interrupted for campaign in campaigns),
    }


def _again(entry: dict[str, Any], side: SwarmOptions) -> str:
    """The command line that shows what the smallest seed of a group came to."""
    if entry["group"] in NOT_SERVED.values():
        return seed_line(side, entry["smallest_seed"])
    if entry["artifact"] is not None:
        return replay_line(Path(entry["artifact"]))
    return kept_seed_line(side, entry["smallest_seed"])
