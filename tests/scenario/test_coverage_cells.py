"""Each pair of these kinds of fault and a phase that is not on the list of what cannot be is hit by
a fault that waits for that phase."""

from __future__ import annotations

import pytest

from faults.cells import possible_phases
from faults.kinds import KINDS
from faults.running import run
from faults.schedule import with_faults
from sim.lifecycle import PHASES
from sim.scenario import Scenario, UniformWorkload, with_settings

FAR_APART = Scenario(
    workload=UniformWorkload(
        requests=len(PHASES), prompt_tokens=(100, 300), output_tokens=(4, 8), interval_ms=100.0
    ),
    extra_config={"transfer_timeout": 1},
    quiet_phase_s=0.0,
    max_virtual_s=3.0,
)
READS, WRITES = ({"extra_config.read_mode": mode} for mode in ("'true'", "'false'"))
REFUSES = {"connector": "hybrid"}
LEFT_DURING_THE_READ = (
    "abort:phase=read_in_flight,request=req-{last}"  # its blocks stay for a while
)
PRODUCERS_PHASES = ("queued_at_p", "prefill", "handoff", "release", "finished")
ANY = "{kind}:phase={phase},request={request}"
ANY_ON_NODE = ANY + ",node={node},for_s=0.02"
OF_ENGINES = (
    "bandwidth-reduced",
    "crash",
    "link-down",
    "pause",
    "slow-steps",
    "small-pool",
    "wall-clock-jump",
)
AIMS = {
    "abort": ANY,
    **dict.fromkeys(OF_ENGINES, ANY_ON_NODE),
    "early-hand-off": ANY,
    "key-stripped": "{kind}:request={request}",
    "mixed-up-params": "{kind}:phase={phase},request={request}",
    "hand-off-lost": "{kind}:request={request}",
    "router-hold": "{kind}:request={request},seconds=0.05",
    "router-retry": ANY + ",same_transfer_id={known}",
    "several-samples": ANY,
    "stop-token": "{kind}:request={request}",
    "wrong-params": "{kind}:request={request}",
}


@pytest.mark.parametrize("kind", AIMS)
def test_every_phase_that_is_possible_is_hit(kind: str) -> None:
    """One request for each phase, and one fault that waits for it there."""
    hit = set()
    for way in (REFUSES,) if KINDS[kind].needs_fail_closed else (READS, WRITES):
        faults = [
            AIMS[kind].format(
                kind=kind,
                phase=phase,
                request=f"req-{number}",
                node="p0" if phase in PRODUCERS_PHASES else "d0",
                known="false" if phase in PRODUCERS_PHASES else "true",
            )
            for number, phase in enumerate(PHASES)
        ]
        if "finished" in possible_phases(kind):
            faults.append(LEFT_DURING_THE_READ.format(last=len(PHASES) - 1))
        scenario = with_settings(FAR_APART, way)
        row = run(with_faults(scenario, faults)).coverage[kind]
        hit |= {phase for phase, count in row.items() if count}
    assert hit == set(possible_phases(kind))
