"""The source is quiescent before the hand-off (R19), however soon the token is out (F34)."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.mutants.catalog import MUTANTS
from faults.running import FaultedRun, run
from faults.schedule import with_faults
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.workload import Segment

ONE = Scenario(
    connector="hybrid",
    workload=InlineWorkload((InlineRequest("only", (Segment(1, 100),), 8),)),
    quiet_phase_s=1.0,
)
DRAFTERS = {"deepseek-mla": "mtp", "glm-flash": "mtp", "kimi-linear": "dspark"}
FAULT = "late-device-writes:request=only,count=null"


def speculating(model: str, *faults: str, **settings: str) -> FaultedRun:
    speculation = f"{{method: {DRAFTERS[model]}, num_speculative_tokens: 1}}"
    changes = {"model": model, "speculation": speculation, **settings}
    return run(with_faults(with_settings(ONE, changes), faults))


def oracles(result: FaultedRun) -> set[str]:
    return {violation.oracle for violation in result.result.outcome.violations}


@pytest.fixture
def impatient(tmp_path: Path) -> str:
    """An overlay with the connector, less its wait for the device."""
    MUTANTS["device-not-awaited"].write(tmp_path)
    return f"'{tmp_path}'"


@pytest.mark.requirement("R19")
@pytest.mark.parametrize("model", DRAFTERS)
@pytest.mark.parametrize("ahead", ["true", "false"])
def test_a_device_that_writes_on_holds_the_hand_off_up(model: str, ahead: str) -> None:
    """With synchronous and asynchronous scheduling; the fault has struck all the same."""
    result = speculating(model, FAULT, async_scheduling=ahead)
    assert result.coverage["late-device-writes"]["prefill"] >= 1
    assert oracles(result) == set()


@pytest.mark.requirement("R19")
@pytest.mark.parametrize("model", DRAFTERS)
def test_a_connector_that_does_not_wait_for_the_device_is_found_out(
    model: str, impatient: str
) -> None:
    """The consumer reads before the producer's drafter has written its rows."""
    assert oracles(speculating(model, FAULT, overlay=impatient)) == {"wrong-bytes"}


def test_without_the_fault_the_impatient_connector_gets_away_with_it(impatient: str) -> None:
    """So it is the fault that finds it."""
    assert oracles(speculating("deepseek-mla", overlay=impatient)) == set()


def test_without_a_drafter_nothing_is_written_after_sampling() -> None:
    """The fault is armed, and says that it struck nothing."""
    result = run(with_faults(ONE, [FAULT]))
    assert (result.faults[0].strikes, result.faults[0].hits) == (1, 0)
