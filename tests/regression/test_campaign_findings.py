"""What campaigns found in vLLM's MoRIIO connector, as small as it could be made.

docs/findings.md explains each. When a newer vLLM no longer fails in one of these ways, its test
turns red, and the page has to say so.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from faults.running import run
from faults.schedule import parse
from sim.outcome import Outcome
from sim.scenario import Scenario, UniformWorkload, with_settings

TWO = UniformWorkload(
    requests=2, prompt_tokens=(40, 40), output_tokens=(4, 4), interval_ms=100, repeats=0.0
)
DIES = {("liveness", "engine-died"), ("liveness", "not-recovered")}
WITH_BLOCKS_HELD = {*DIES, ("leak", None), ("release-once", "never-released")}
WRONG = {("wrong-bytes", None), ("same-output", None)}
WRITE = "extra_config.read_mode=false"
TWO_RANKS = ["tp_size=2", "executor=multi-process", "async_scheduling=true", "max_virtual_s=400"]
ONE_TOKEN = "workload.output_tokens=[1, 1]"
SHORT = "workload.prompt_tokens=[10, 10]"

# What has to be set, the fault, and what is broken by it.
FINDINGS = [
    pytest.param(["model=gemma-swa"], "completion-error", WITH_BLOCKS_HELD, id="several-groups"),
    pytest.param([], "no-session", WITH_BLOCKS_HELD, id="no-session"),
    pytest.param([], "message-dropped:node=p0", WITH_BLOCKS_HELD, id="half-a-welcome"),
    pytest.param(
        [*TWO_RANKS, ONE_TOKEN],
        "control-plane-silent:phase=allocated",  # of one rank
        {*WITH_BLOCKS_HELD, ("bounded-waiting", "stuck-step")},
        id="one-rank",
    ),
    pytest.param([SHORT], "wrong-params:wrong=no-blocks", WRONG, id="no-blocks"),
    pytest.param([], "wrong-params:wrong=short-blocks", WRONG, id="too-few-blocks"),
    pytest.param([], "wrong-params:wrong=no-blocks", WITH_BLOCKS_HELD, id="far-too-few-blocks"),
    pytest.param(
        [],
        "malformed-message:at_s=0.05,node=p0",
        {("leak", None), ("release-once", "never-released")},
        id="nonsense",
    ),
    pytest.param(
        ["seed=3"],  # of which the port is the key that is missing
        "wrong-params:wrong=missing-key",
        WITH_BLOCKS_HELD,
        id="missing-parameter",
    ),
    pytest.param([WRITE], "message-duplicated:phase=read_done,nth=1", DIES, id="write-told-twice"),
    pytest.param(
        [WRITE, "topology.consumers=2", "max_virtual_s=400"],
        "malformed-message:node=d1,at_s=0.05,content=nested",
        {
            ("bounded-waiting", "slow-step"),
            ("liveness", "not-ended"),
            ("leak", None),
            ("release-once", "never-released"),
        },
        id="write-deaf-consumer",
    ),
    pytest.param(
        [WRITE],
        "malformed-message:at_s=0.05,node=d0",
        {("liveness", "not-ended"), ("leak", None)},
        id="write-nonsense",
    ),
    pytest.param(
        [WRITE],
        "message-dropped:at_s=0.05,node=p0",
        {("liveness", "not-ended"), ("leak", None)},
        id="write-lost-message",
    ),
    pytest.param(
        [WRITE],
        "crash:node=d0,at_s=0.05,for_s=0.01",
        {("liveness", "not-ended"), ("leak", None)},
        id="write-restart",
    ),
]


def outcome_of(settings: Sequence[str], faults: Sequence[str]) -> Outcome:
    scenario = Scenario(model="llama", workload=TWO, quiet_phase_s=5.0, max_virtual_s=20.0)
    scenario = with_settings(scenario, dict(setting.split("=", 1) for setting in settings))
    parsed = tuple(msgspec.to_builtins(parse(fault)) for fault in faults)
    return run(msgspec.structs.replace(scenario, faults=parsed)).result.outcome


@pytest.mark.parametrize(("settings", "fault", "broken"), FINDINGS)
def test_a_disturbance_has_the_signature_of_its_finding(
    settings: list[str], fault: str, broken: set[tuple[str, str | None]]
) -> None:
    """These rules break, in these ways; with the same settings and no fault, none does."""
    outcome = outcome_of(settings, [fault])
    assert {(v.oracle, v.evidence.get("kind")) for v in outcome.violations} == broken
    assert outcome_of(settings, []).violations == []
