"""What a campaign was asked to run, and on which software: what its results belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from faults.campaign.seeds import share
from faults.campaign.swarm import SwarmOptions, scenario_of
from faults.campaign.under_test import SourcesUnderTest
from faults.identity import source_digest, versions
from sim.errors import UsageError
from sim.foresight import require_possible, require_sources
from sim.scenario import Scenario

Shard = tuple[int, int]

_NOT_SET = {
    "seed": "the seeds of a campaign are those of --seeds",
    "faults": "a campaign draws the faults of each seed; inject your own with faultlab run --fault",
    "model": "the models of a campaign are those of --model",
    "connector": "the connector of a campaign is that of --connector",
}
"""Keys of a scenario that are not for ``--set``, with the reason."""


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

    @property
    def part(self) -> str:
        """The shard, as ``--shard`` takes it."""
        return f"{self.shard[0]}/{self.shard[1]}"

    def differences(self, other: Plan) -> list[str]:
        """What differs between the campaigns, whichever shards of them these are: of each key of
        ``campaign.json``, the value in this one and in the other."""
        mine, its = (
            dict(_leaves({**msgspec.to_builtins(plan), "shard": None})) for plan in (self, other)
        )
        return [
            f"{key}: {mine.get(key, 'none')} → {its.get(key, 'none')}"
            for key in {**mine, **its}
            if mine.get(key) != its.get(key)
        ]


def plan_here(options: SwarmOptions, seeds: range, shard: Shard) -> Plan:
    """The plan of a campaign that runs on the software that is installed here.

    Raises:
        UsageError: a model, a connector, an overlay or a setting is not accepted.
    """
    for key, remedy in _NOT_SET.items():
        if key in options.settings:
            raise UsageError(f"--set {key}={options.settings[key]}: {remedy}")
    require_sources(scenario_of(seeds.start, options))
    for model in options.models:
        alone = msgspec.structs.replace(options, models=(model,))
        _require_possible(scenario_of(seeds.start, alone))
    versions = {**software(), "under_test": SourcesUnderTest(options).digest()}
    return Plan(options=options, first=seeds.start, end=seeds.stop, shard=shard, versions=versions)


def _require_possible(scenario: Scenario) -> None:
    try:
        require_possible(scenario)
    except UsageError as error:
        raise UsageError(f"{error} (--model {scenario.model})") from error


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


def in_lines(differences: Sequence[str]) -> str:
    """Below a message, one a line."""
    return "".join(f"\n  {difference}" for difference in differences)


def _leaves(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of nested mappings as text, by dotted keys."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield f"{prefix}{key}", shown
