"""One wrong byte in any kind of cache is reported where it is, and only where it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from sim.outcome import Outcome
from sim.probes import Probe, StepTimes
from sim.run import TestBed, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, Topology, with_settings
from sim.workload import Segment

# One block and five tokens: the prefill leaves one token in a group of four, at position 644.
SCENARIO = with_settings(
    Scenario(
        model="glm-flash-nospec",
        workload=InlineWorkload((InlineRequest("req", (Segment(1, 645),), 12),)),
        topology=Topology(colocated=True),
    ),
    {"async_scheduling": "false", "max_num_batched_tokens": "640"},
)
LATENT, INDEXER, RING, STATE = (
    f"model.layers.{name}"
    for name in ("3.self_attn.attn", "7.self_attn.indexer.k_cache",
                 "7.self_attn.indexer.tail_cache", "8.self_attn")
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A byte of a layer in one of the request's blocks, after a number of steps."""

    layer: str
    group: int
    block: int
    """Place in the request's block table."""
    entry: int
    """Within the block; the byte for a state."""
    after_steps: int = 2


class Damage(Probe):
    """Flips a bit of one place, as something that writes to memory would."""

    def __init__(self, bed: TestBed, place: Place) -> None:
        self._bed = bed
        self._place = place
        self._steps = 0
        self.block_id = -1

    def step_done(self, step: StepTimes) -> None:
        self._steps += step.model_executed
        if self._steps == self._place.after_steps and self.block_id < 0:
            self._flip(self._bed.consumers[0])

    def _flip(self, engine: Any) -> None:
        place, memory = self._place, engine.workers[0].memory
        (request_id,) = engine.loop.scheduler.requests
        tables = engine.loop.scheduler.kv_cache_manager.get_block_ids(request_id)
        self.block_id = tables[place.group][place.block]
        caches = memory.caches
        cells = caches.slots if place.layer in caches.layers else caches.states
        cells(place.layer)[self.block_id, place.entry, ...] ^= 1
        memory.wrote(np.array([self.block_id]), 0, lambda: "a test")


def damaged(
    place: Place, check: str, model: str = "glm-flash-nospec", **settings: str
) -> tuple[Outcome, int]:
    damages: list[Damage] = []

    def prepare(bed: TestBed) -> None:
        damages.append(Damage(bed, place))
        bed.world.probes.add(damages[0])

    scenario = msgspec.structs.replace(SCENARIO, model=model, check=check)
    outcome = run(with_settings(scenario, settings), prepare=prepare).outcome
    assert damages[0].block_id > 0
    return outcome, damages[0].block_id


FOUND = {
    "a latent entry": (Place(LATENT, 4, 0, 70), [70, 70]),
    "an entry of several tokens": (Place(INDEXER, 4, 0, 17), [68, 71]),
    "the last entry of a block": (Place(INDEXER, 4, 0, 159), [636, 639]),
    "the entry of a group that decodes completed": (
        Place(INDEXER, 4, 1, 1, after_steps=5),
        [644, 647],
    ),
    "a token in a ring": (Place(RING, 5, 0, 0), [644, 644]),
    "a token that a decode left in a ring": (Place(RING, 5, 0, 2, after_steps=4), [646, 646]),
    "a state": (Place(STATE, 2, 1, 8), [644, 644]),
}


@pytest.mark.parametrize("check", ["incremental", "full"])
@pytest.mark.parametrize("what", FOUND)
def test_a_wrong_byte_is_reported_where_it_is(what: str, check: str) -> None:
    """With its layer, group, block and tokens; and the output is wrong from there on."""
    place, tokens = FOUND[what]
    outcome, block_id = damaged(place, check)
    wrong, output = outcome.violations
    assert (wrong.oracle, output.oracle) == ("wrong-bytes", "same-output")
    assert (wrong.evidence["layer"], wrong.evidence["group"]) == (place.layer, place.group)
    assert (wrong.evidence["block_ids"], wrong.evidence["tokens"]) == ([block_id], tokens)
    assert f"layer {place.layer}, group {place.group}, block {block_id}, " in wrong.detail


DRAFTED = "model.layers.9.self_attn"
FOUND_BY_DRAFTER = {
    "a latent entry": (Place(f"{DRAFTED}.attn", 3, 0, 70), [70, 70]),
    "an entry of several tokens": (Place(f"{DRAFTED}.indexer.k_cache", 3, 0, 17), [68, 71]),
    # A step returns before its drafter has written.
    "a token in a ring": (Place(f"{DRAFTED}.indexer.tail_cache", 4, 0, 4, 3), [644, 644]),
}


@pytest.mark.parametrize("check", ["incremental", "full"])
@pytest.mark.parametrize("what", FOUND_BY_DRAFTER)
def test_a_wrong_byte_of_a_drafter_costs_drafts_and_no_output(what: str, check: str) -> None:
    """The drafter reads its own layers alone, and the model verifies what it says."""
    place, tokens = FOUND_BY_DRAFTER[what]
    outcome, block_id = damaged(place, check, "glm-flash")
    (wrong,) = outcome.violations
    assert wrong.oracle == "wrong-bytes"
    assert (wrong.evidence["layer"], wrong.evidence["group"]) == (place.layer, place.group)
    assert (wrong.evidence["block_ids"], wrong.evidence["tokens"]) == ([block_id], tokens)


@pytest.mark.parametrize("check", ["incremental", "full"])
def test_a_drafter_with_a_group_of_its_own_reads_what_its_window_has(check: str) -> None:
    """Token 581 is in a window of 512 tokens before the end of the prompt."""
    place = Place("draft.layers.1.self_attn.attn", 4, 9, 5, after_steps=3)
    settings = {"speculation.method": "dspark", "num_speculative_tokens": "3"}
    outcome, block_id = damaged(place, check, "qwen-hybrid", **settings)
    (wrong,) = outcome.violations
    assert (wrong.evidence["layer"], wrong.evidence["group"]) == (place.layer, 4)
    assert (wrong.evidence["block_ids"], wrong.evidence["tokens"]) == ([block_id], [581, 581])


def test_a_speculating_model_reads_its_own_ring_too() -> None:
    """Drafts lie beside the tokens of the group that they go on from."""
    outcome, _ = damaged(Place(RING, 4, 0, 4), "incremental", "glm-flash")
    wrong, output = outcome.violations
    assert (wrong.evidence["layer"], wrong.evidence["tokens"]) == (RING, [644, 644])
    assert output.oracle == "same-output"


NOT_READ = {
    "an entry of a group that is not complete": Place(INDEXER, 4, 1, 1),
    "a ring's place of a complete group": Place(RING, 5, 0, 3),
    "a ring's place that comes next": Place(RING, 5, 0, 1),
    "a block that nobody reads any more": Place(STATE, 2, 0, 8),
}


@pytest.mark.parametrize("check", ["incremental", "full"])
@pytest.mark.parametrize("what", NOT_READ)
def test_a_wrong_byte_that_is_never_read_does_no_harm(what: str, check: str) -> None:
    """It is written before it is read, or it is not read at all."""
    outcome, _ = damaged(NOT_READ[what], check)
    assert outcome.violations == []
