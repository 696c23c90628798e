"""Bytes that land in a layer which a pass has written, while other layers have yet to be, are found
by the next pass that reads them; and a pass in pieces is not compared with what it wrote itself."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from sim.engine.forward import SyntheticModel
from sim.engine.forward_pass import ForwardPass
from sim.outcome import Outcome
from sim.probes import Probe
from sim.run import TestBed, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, Topology, with_settings
from sim.workload import Segment

PROMPT = 645
"""One block and five tokens, of which the last is left in a ring."""
SCENARIO = with_settings(
    Scenario(
        model="glm-flash-nospec",
        workload=InlineWorkload((InlineRequest("req", (Segment(1, PROMPT),), 12),)),
        topology=Topology(colocated=True),
    ),
    {"async_scheduling": "false", "max_num_batched_tokens": "640"},
)
PLACES = {
    "an entry": ("model.layers.3.self_attn.attn", 4, 1),
    "a ring": ("model.layers.3.self_attn.indexer.tail_cache", 5, 0),
    "a state": ("model.layers.1.self_attn", 1, 1),
}
"""Layer, group, and place of the block in the request's table."""


class CountReads(Probe):
    """How many blocks were compared."""

    blocks = 0

    def blocks_read(
        self, node: str, rank: int, request_id: str, group: int, block_ids: Any
    ) -> None:
        self.blocks += len(block_ids)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer is a piece, as with a connector that marks the stream in each hook."""

    def run_hooked(self: Any, layers: Any) -> None:
        for layer in self._layers:
            self.issue(layer)
            self.submit()
        self._finish()

    monkeypatch.setattr(ForwardPass, "run_hooked", run_hooked)


def hit(monkeypatch: pytest.MonkeyPatch, what: str) -> list[int]:
    """Wrong bytes land in a layer right after the pass that ends the prompt has written it."""
    layer, group, place = PLACES[what]
    blocks: list[int] = []
    original = SyntheticModel.write

    def write(self: Any, batch: Any, piece: Any) -> None:
        original(self, batch, piece)
        (chunk,) = batch.chunks
        if piece and layer in piece and chunk.end == PROMPT:
            blocks.append(int(chunk.state.tables[group].ids[place]))
            caches = self.memory.caches
            cells = caches.slots if layer in caches.layers else caches.states
            cells(layer)[blocks[0]] ^= 0xFF
            self.memory.landed(np.array(blocks), self.engine.kernel.now_ns, lambda: "a landing")

    monkeypatch.setattr(SyntheticModel, "write", write)
    return blocks


def outcome_of(check: str) -> tuple[Outcome, int]:
    count = CountReads()

    def prepare(bed: TestBed) -> None:
        bed.world.probes.add(count)

    scenario = msgspec.structs.replace(SCENARIO, check=check)
    return run(scenario, prepare=prepare).outcome, count.blocks


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("what", PLACES)
def test_both_checks_find_what_lands_between_two_pieces(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A layer that is written counts for the block only if nobody writes to it after that."""
    blocks = hit(monkeypatch, what)
    outcomes = []
    for check in ("incremental", "full"):
        blocks.clear()
        outcomes.append(outcome_of(check)[0])
        assert len(blocks) == 1, check
        wrong, output = outcomes[-1].violations
        assert (wrong.oracle, output.oracle) == ("wrong-bytes", "same-output")
        assert (wrong.evidence["layer"], wrong.evidence["block_ids"]) == (PLACES[what][0], blocks)
    assert outcomes[0].violations == outcomes[1].violations


@pytest.mark.usefixtures("in_pieces")
def test_what_a_pass_in_pieces_wrote_itself_is_verified() -> None:
    """Nothing is compared again because other layers were written after it."""
    (outcome, compared), (_, all_read) = outcome_of("incremental"), outcome_of("full")
    assert outcome.violations == []
    assert compared == 0 < all_read
