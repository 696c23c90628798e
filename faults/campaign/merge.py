"""The shards of one campaign put together: what it would have been on one machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from faults.campaign.plan import Plan, in_lines
from faults.campaign.result import SeedResult
from faults.campaign.store import Store, read, read_left
from faults.directories import FAILURES
from sim.errors import UsageError


def merge(directories: Sequence[Path]) -> tuple[Plan, list[SeedResult]]:
    """The whole campaign, and its results in the order of seeds.

    Raises:
        UsageError: a directory holds no campaign; they are not the shards of one, each once; a seed
            has results that differ.
    """
    for number, directory in enumerate(directories):
        if directory in directories[:number]:
            raise UsageError(f"{directory}: is given twice; give each shard once")
    shards = {directory: read(directory) for directory in directories}
    of_part: dict[int, Path] = {}
    for directory, (plan, results) in shards.items():
        _require_same_campaign(directories[0], shards[directories[0]][0], directory, plan)
        part = plan.shard[0]
        if part in of_part:
            raise UsageError(f"{directory}: is shard {plan.part}, and so is {of_part[part]}")
        of_part[part] = directory
        _require_own_seeds(directory, plan, results)
    plan = shards[directories[0]][0]
    missing = [f"{part}/{plan.shard[1]}" for part in _parts(plan) if part not in of_part]
    if missing:
        raise UsageError(
            f"shard {', '.join(missing)} is missing; give the directories of all shards"
        )
    merged = [
        at_home(result, directory)
        for directory, (_, results) in shards.items()
        for result in results
    ]
    whole = msgspec.structs.replace(plan, shard=(1, 1))
    return whole, sorted(merged, key=lambda result: result.seed)


def left_seeds(directories: Sequence[Path]) -> list[int]:
    """Those that the --budget of one of the shards left, in order."""
    return sorted(seed for directory in directories for seed in read_left(directory))


def write(directory: Path, plan: Plan, results: Sequence[SeedResult], left: Sequence[int]) -> None:
    """A new campaign directory with ``results`` and copies of their artifacts."""
    with Store(directory, plan) as store:
        for result in results:
            if result.artifact is not None:
                source = Path(result.artifact)
                shutil.copytree(source, directory / FAILURES / source.name)
            store.add(at_home(result, directory))
        store.leave(left)


def at_home(result: SeedResult, directory: Path) -> SeedResult:
    """With the artifact where it is now: shards may come from other machines."""
    if result.artifact is None:
        return result
    here = directory / FAILURES / Path(result.artifact).name
    return msgspec.structs.replace(result, artifact=str(here) if here.is_dir() else None)


def _require_same_campaign(first: Path, one: Plan, directory: Path, plan: Plan) -> None:
    differing = one.differences(plan)
    if one.shard[1] != plan.shard[1]:
        differing.append(f"shard: {one.part} → {plan.part}")
    if differing:
        raise UsageError(
            f"{first} and {directory} are not shards of one campaign; give those of one. What is "
            "different (first → second):" + in_lines(differing)
        )


def _require_own_seeds(directory: Path, plan: Plan, results: Sequence[SeedResult]) -> None:
    foreign = sorted({result.seed for result in results} - set(plan.seeds))
    if foreign:
        raise UsageError(f"{directory}: seed {foreign[0]} is not one of shard {plan.part}")


def _parts(plan: Plan) -> range:
    return range(1, plan.shard[1] + 1)
