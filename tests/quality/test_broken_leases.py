"""Defects of leases that make no answer wrong: requests fail that are served without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from faults.mutants.catalog import MUTANTS
from faults.mutants.mutant import Mutant
from faults.running import run
from faults.schedule import parse
from sim.outcome import Outcome
from sim.scenario import Scenario, load, loads

BUSY = Path(__file__).parents[2] / "faults" / "scenarios" / "busy-consumer.yaml"
RESTARTED = """
# While the consumer is busy its producer starts again. Holds of the two starts have the same
# numbers, and the consumer releases those of the first when those of the second wait to be read.
schema_version: 1
model: llama
connector: hybrid
extra_config: {defer_timeout: 3, transfer_timeout: 2}
quiet_phase_s: 30
engine: {max_num_seqs: 1}
workload:
  kind: inline
  requests:
    - {request_id: long, prompt: [[1, 32]], max_tokens: 500}
    - {request_id: lost-0, prompt: [[2, 512]], max_tokens: 8, arrival_s: 0.1}
    - {request_id: lost-1, prompt: [[3, 512]], max_tokens: 8, arrival_s: 0.2}
    - {request_id: lost-2, prompt: [[4, 512]], max_tokens: 8, arrival_s: 0.3}
    - {request_id: next-0, prompt: [[100, 512]], max_tokens: 8, arrival_s: 1.5}
    - {request_id: next-1, prompt: [[101, 512]], max_tokens: 8, arrival_s: 1.6}
    - {request_id: next-2, prompt: [[102, 512]], max_tokens: 8, arrival_s: 1.7}
    - {request_id: next-3, prompt: [[103, 512]], max_tokens: 8, arrival_s: 1.8}
"""


def outcome_of(
    scenario: Scenario, directory: Path, mutant: Mutant | None = None, *faults: str
) -> Outcome:
    decoded: list[Any] = [msgspec.to_builtins(parse(fault)) for fault in faults]
    if mutant is not None:
        mutant.write(directory)
        scenario = msgspec.structs.replace(scenario, overlay=str(directory))
    return run(msgspec.structs.replace(scenario, faults=tuple(decoded))).result.outcome


def test_a_scheduler_that_does_not_take_renewals_loses_the_blocks(tmp_path: Path) -> None:
    """It hears of them, and lets the lease run out all the same: the busy consumer's loads fail,
    and nothing wrong is served."""
    mutant = Mutant(
        name="renewal-not-taken",
        breaks="The scheduler hears of renewals, and lets the lease run out.",
        module="connector.producer_scheduler",
        qualname="ProducerScheduler._advance",
        right="lease.deadline = now + self._hold_timeout_s",
        wrong="pass",
    )
    outcome = outcome_of(load(BUSY), tmp_path, mutant)
    assert outcome.violations == []
    assert outcome.requests["error"] >= 1


def test_a_restarted_producer_keeps_what_is_released_of_its_earlier_start(tmp_path: Path) -> None:
    """What was lost with the crash fails; everything that came after it is served."""
    outcome = outcome_of(loads(RESTARTED), tmp_path, None, "crash:node=p0,at_s=1,for_s=0.2")
    assert outcome.violations == []
    assert outcome.requests == {"total": 8, "error": 3, "length": 5, "unfinished": 0}


def test_a_rank_that_takes_a_stale_release_for_its_own_loses_blocks(tmp_path: Path) -> None:
    """Without the checks of the incarnation and of the transfer, either of which is enough,
    requests fail that the crash did not touch."""
    mutant = Mutant(
        name="release-of-earlier-start",
        breaks="A release of a hold of an earlier start ends one of this.",
        module="connector.holds",
        qualname="HoldBook.release",
        right="if hold is None or hold.expected.transfer_id != transfer_id:",
        wrong="if (hold := self._by_number.get(hold_id.number)) is None:",
    )
    outcome = outcome_of(loads(RESTARTED), tmp_path, mutant, "crash:node=p0,at_s=1,for_s=0.2")
    assert outcome.violations == []
    assert outcome.requests["error"] > 3


def test_a_hold_of_an_earlier_start_that_both_sides_take_for_one_of_this_is_another(
    tmp_path: Path,
) -> None:
    """The reader finds the producer's new start at the old address, and the hold's number there."""
    mutant = MUTANTS["hold-of-earlier-start"]
    outcome = outcome_of(loads(RESTARTED), tmp_path, mutant, "crash:node=p0,at_s=1,for_s=0.2")
    oracles = {violation.oracle for violation in outcome.violations}
    assert oracles == {"use-after-free", "wrong-bytes", "same-output"}
