"""The three runs of the demonstration: what each announces, does and proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from rich.console import Console

from faults.cli.options import find_scenario
from faults.cli.run import save_unasked
from faults.cli.run_summary import render_run
from faults.cli.simulate import simulate
from sim.outcome import Outcome
from sim.scenario import GeneratedWorkload, Scenario

_LATE = "late-hand-off"
_EXPECTED = "wrong-bytes"


@dataclass(frozen=True)
class Act:
    """One run; ``objection`` says what is not as announced about its outcome, if anything."""

    title: str
    announcement: str
    proof: str
    scenario: Callable[[], Scenario]
    objection: Callable[[Outcome], str | None]

    def play(self, console: Console) -> str | None:
        """Run it and show what came of it; the objection to it, or None."""
        scenario = self.scenario()
        result = simulate(scenario).result
        saved = save_unasked(scenario, result) if result.outcome.violations else None
        render_run(console, scenario, result, saved)
        return self.objection(result.outcome)


def _workload() -> Scenario:
    return Scenario(workload=GeneratedWorkload(requests=60, length_scale=0.1))


def _late() -> Scenario:
    return find_scenario(_LATE)


def _in_time() -> Scenario:
    scenario = _late()
    return msgspec.structs.replace(
        scenario, router=msgspec.structs.replace(scenario.router, holds=())
    )


def must_pass(outcome: Outcome) -> str | None:
    """The objection to a run that was to pass."""
    if outcome.violations:
        return f"the run was to pass, and broke {', '.join(outcome.signature())}"
    served = outcome.requests.get("length", 0)
    if served != outcome.requests["total"]:
        return f"{outcome.requests['total']} requests were to be served, and {served} were"
    return None


def must_read_wrong_bytes(outcome: Outcome) -> str | None:
    """The objection to a run in which another request's bytes were to be found."""
    found = [v for v in outcome.violations if v.oracle == _EXPECTED]
    if not found:
        broken = ", ".join(outcome.signature()) or "no rule was broken"
        return f"wrong bytes were to be found; instead: {broken}"
    if not any(v.evidence["owner"] for v in found):
        return "wrong bytes were found, but nobody could say whose they are"
    return None


ACTS = (
    Act(
        title="1. a workload through a P/D pair",
        announcement=(
            "60 requests of the Mooncake trace's shape, a tenth of its lengths, through a "
            "prefill and a decode engine: vLLM's scheduler, cache manager and MoRIIO connector, "
            "in virtual time. This has to pass."
        ),
        proof=(
            "all 60 requests were served, every cache entry that a forward pass read was the "
            "right one, and nothing leaked."
        ),
        scenario=_workload,
        objection=must_pass,
    ),
    Act(
        title="2. the same connector, with a late hand-off",
        announcement=(
            "The router holds one request back for 65 s. The producer waits 60 s for the "
            "consumer to fetch the blocks, then frees them, and later requests reuse them. "
            "The consumer is not told. This has to end with wrong bytes."
        ),
        proof=(
            "the consumer decoded from another request's bytes; layers, blocks, tokens and that "
            "request are named above, and the run can be replayed."
        ),
        scenario=_late,
        objection=must_read_wrong_bytes,
    ),
    Act(
        title="3. the same without the delay",
        announcement="The same requests at the same times, but nobody is held back. Has to pass.",
        proof="it was the late hand-off that did it, and the checks do not cry wolf.",
        scenario=_in_time,
        objection=must_pass,
    ),
)
