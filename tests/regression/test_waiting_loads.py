"""vLLM's queue: a request whose load has failed keeps its blocks until it is its turn."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from faults.running import run
from faults.schedule import parse
from sim.outcome import Outcome
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.workload import Segment

LENGTHS = (262, 243, 281, 289, 1, 20)


def served(settings: Mapping[str, str]) -> Outcome:
    """A consumer with sliding windows refuses what a producer without has to offer, all at once."""
    requests = (
        InlineRequest(f"req-{n}", (Segment(n, length),), 1) for n, length in enumerate(LENGTHS)
    )
    scenario = Scenario(
        connector="hybrid",
        workload=InlineWorkload(tuple(requests)),
        quiet_phase_s=70.0,
        max_virtual_s=10.0,
        faults=(msgspec.to_builtins(parse("disagreement:node=d0,model=gemma-swa")),),
    )
    tight = {"kv_load_failure_policy": "recompute", "async_scheduling": "false"}
    return run(with_settings(scenario, {**tight, **settings})).result.outcome


def test_loads_that_failed_together_starve_the_first_of_them() -> None:
    """To compute its prompt again it needs more blocks than a load with windows, and the next one
    has those. See docs/findings.md."""
    outcome = served({})
    assert outcome.requests["unfinished"] == outcome.requests["total"] == len(LENGTHS)
    assert {violation.oracle for violation in outcome.violations} == {"liveness", "leak"}


def test_with_blocks_enough_for_all_each_is_computed_again() -> None:
    outcome = served({"num_blocks": "800"})
    assert outcome.requests["length"] == len(LENGTHS)
    assert outcome.violations == []
