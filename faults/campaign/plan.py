"""What a campaign was asked to run, and on which software: what its results belong to."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from faults.campaign.seeds import share
from faults.campaign.swarm import SwarmOptions, scenario_of
from faults.campaign.under_test import SourcesUnderTest
from sim.foresight import require_sources
from sim.identity import source_digest, versions

Shard = tuple[int, int]


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One campaign, or one shard of it.

    Args:
        options: what all seeds have in common.
        first: the first seed of the campaign.
        end: the seed behind its last.
        shard: which part of how many, counted from 1.
        versions: of the interpreter, libraries and sources, by name.
    """

    options: SwarmOptions
    first: int
    end: int
    shard: Shard = (1, 1)
    versions: dict[str, str] = {}

    @property
    def seeds(self) -> range:
        """Those of this shard."""
        return share(range(self.first, self.end), self.shard)

    def differences(self, other: Plan) -> list[str]:
        """What differs between the campaigns, whichever shards of them these are."""
        mine, its = ({**msgspec.to_builtins(plan), "shard": None} for plan in (self, other))
        return [
            f"{key} {_shown(mine[key])} and {_shown(its[key])}"
            for key in mine
            if mine[key] != its[key]
        ]


def plan_here(options: SwarmOptions, seeds: range, shard: Shard) -> Plan:
    """The plan of a campaign that runs on the software that is installed here.

    Raises:
        UsageError: a model, a connector, an overlay or a setting is not accepted.
    """
    for model in options.models:
        scenario = scenario_of(seeds.start, msgspec.structs.replace(options, models=(model,)))
        require_sources(scenario)
    versions = {**software(), "under_test": SourcesUnderTest(options).digest()}
    return Plan(options=options, first=seeds.start, end=seeds.stop, shard=shard, versions=versions)


@cache
def software() -> dict[str, str]:
    """Versions here, also of what draws the scenarios, and of the connector that comes with it."""
    sources = {name: source_digest(_root(name)) for name in ("faults", "connector")}
    return {**versions(), **sources}


def _root(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
