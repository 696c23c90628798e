"""vLLM's queue: a request whose load has failed keeps its blocks until it is its turn."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from rich.console import Console

from faults.campaign.excuses import judge
from faults.campaign.result import SeedResult, failures_of, summarize
from faults.campaign.swarm import SwarmOptions
from faults.cli.campaign_summary import excused_groups, exit_code, render
from faults.cli.outcome import ExitCode
from faults.mutants.mutant import Mutant
from faults.running import run
from faults.schedule import parse
from sim.outcome import RunResult
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.workload import Segment

LENGTHS = (262, 243, 281, 289, 1, 20)
STARVED = ["leak/starved-queue/consumer", "liveness/starved-queue"]


def planted(breaks: str, module: str, qualname: str, right: str, wrong: str) -> Mutant:
    """A defect of the connector, which ``breaks`` says."""
    return Mutant(
        name="planted", breaks=breaks, module=module, qualname=qualname, right=right, wrong=wrong
    )


SITS_ON_A_LOAD = planted(
    "The end of one load is never told.",
    *("connector.worker", "ConsumerRank.results"),
    right="= self._refused, set()",
    wrong='= {name for name in self._refused if "req-1" not in name}, set()',
)
REFUSES_ALL = planted(
    "What producers offer is refused, whatever it is.",
    *("connector.consumer_scheduler", "ConsumerScheduler._load"),
    right="plan = plan_read(",
    wrong="raise MalformedPayload('planted')\n            plan = plan_read(",
)
NEVER_LETS_GO = planted(
    "A lease never runs out.",
    *("connector.producer_scheduler", "ProducerScheduler._expire"),
    right="now >= lease.deadline",
    wrong="False",
)


class Served(NamedTuple):
    """A run and its result."""

    scenario: Scenario
    result: RunResult


def served(settings: Mapping[str, str], *faults: str) -> Served:
    """All requests come at once, and a load that fails is computed again."""
    requests = (
        InlineRequest(f"req-{n}", (Segment(n, length),), 1) for n, length in enumerate(LENGTHS)
    )
    scenario = Scenario(
        connector="hybrid",
        workload=InlineWorkload(tuple(requests)),
        quiet_phase_s=70.0,
        max_virtual_s=10.0,
        faults=tuple(msgspec.to_builtins(parse(fault)) for fault in faults),
    )
    tight = {"kv_load_failure_policy": "recompute", "async_scheduling": "false"}
    scenario = with_settings(scenario, {**tight, **settings})
    return Served(scenario, run(scenario).result)


def refused(settings: Mapping[str, str]) -> Served:
    """A consumer with sliding windows refuses what a producer without has to offer."""
    return served(settings, "disagreement:node=d0,model=gemma-swa")


def campaign_of(run: Served) -> dict[str, Any]:
    """The summary of a campaign of which it is the only run."""
    violations, records = run.result.outcome.violations, run.result.log.records
    failures = failures_of(judge(violations, records, run.scenario).counting)
    result = SeedResult(seed=0, status="failed", failures=failures)
    return summarize([result], excused_groups(None), seeds=range(1), wall_s=1.0, interrupted=False)


def test_loads_that_failed_together_starve_the_first_of_them() -> None:
    """To compute its prompt again it needs more blocks than a load with windows, and the next one
    has those. See docs/findings.md. Campaigns show it, and do not fail for it."""
    run = refused({})
    outcome = run.result.outcome
    assert outcome.requests["unfinished"] == outcome.requests["total"] == len(LENGTHS)
    document, shown = campaign_of(run), StringIO()
    assert sorted(group["group"] for group in document["groups"]) == STARVED
    assert exit_code(document) == ExitCode.OK
    render(document, SwarmOptions("hybrid"), Console(file=shown, width=200))
    page = "docs/findings.md#loads-that-failed-together-starve-the-first-of-them"
    assert shown.getvalue().count(f"(1 run, vLLM's own: {page})") == len(STARVED)


@pytest.mark.parametrize(
    ("defect", "new"),
    [
        pytest.param(SITS_ON_A_LOAD, ["leak/consumer", "liveness/not-ended"], id="on a load"),
        pytest.param(
            NEVER_LETS_GO,
            ["leak/producer", "release-once/never-released/producer"],
            id="on what was to be read",
        ),
    ],
)
def test_a_connector_that_sits_on_blocks_fails_all_the_same(
    defect: Mutant, new: list[str], tmp_path: Path
) -> None:
    """In place of vLLM, or beside it."""
    defect.write(tmp_path)
    document = campaign_of(refused({"overlay": str(tmp_path)}))
    assert exit_code(document) == ExitCode.VIOLATION
    assert sorted(document["new_groups"]) == new


def test_a_connector_that_fails_loads_though_nothing_is_wrong_is_not_excused(
    tmp_path: Path,
) -> None:
    """The queue is starved by vLLM, and the loads failed by the connector."""
    REFUSES_ALL.write(tmp_path)
    healthy = {"model": "gemma-swa", "topology.producers": "6", "num_blocks": "140"}
    document = campaign_of(served({**healthy, "overlay": str(tmp_path)}))
    assert exit_code(document) == ExitCode.VIOLATION
    assert sorted(document["new_groups"]) == ["leak/consumer", "liveness/not-ended"]


def test_with_blocks_enough_for_all_each_is_computed_again() -> None:
    outcome = refused({"num_blocks": "800"}).result.outcome
    assert outcome.requests["length"] == len(LENGTHS)
    assert outcome.violations == []
