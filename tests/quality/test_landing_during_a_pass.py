"""Bytes that land in a block while a forward pass reads it are noticed in that pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sim.engine.forward import SyntheticModel
from sim.outcome import Outcome
from sim.run import run
from sim.scenario import InlineRequest, InlineWorkload, Scenario
from sim.units import MS
from sim.workload import Segment

# One output token: the pass in which the bytes land is the last one.
REQUEST = InlineRequest("only", (Segment(1, 100),), max_tokens=1)


def outcome_of(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None], after_ns: int, check: str
) -> Outcome:
    """Something lands in the request's first block on the consumer, after its pass has begun."""
    original = SyntheticModel.read_last

    def read_last(self: Any, batch: Any, piece: Any) -> None:
        original(self, batch, piece)
        (chunk, *_others) = batch.chunks
        if self.engine.name == "d0" and chunk.state.request_id == "only-d0":
            self.engine.kernel.call_later(after_ns, land, self.memory, chunk.state.tables[0].ids[0])

    def land(memory: Any, block: int) -> None:
        change(memory.caches.slots("model.layers.1.self_attn.attn")[block])
        memory.landed(np.array([block]), 0, lambda: "a late landing")

    monkeypatch.setattr(SyntheticModel, "read_last", read_last)
    scenario = Scenario(
        workload=InlineWorkload((REQUEST,)),
        quiet_phase_s=0.0,
        check=check,  # type: ignore[arg-type]
    )
    return run(scenario).outcome


def flip(slot: Any) -> None:
    slot ^= 0xFF


def leave(slot: Any) -> None:
    """The same bytes again."""


@pytest.mark.parametrize("check", ["incremental", "full"])
@pytest.mark.parametrize(
    ("change", "after_ns", "oracles"),
    [
        (flip, MS, {"wrong-bytes"}),
        (leave, MS, set()),
        (flip, 50 * MS, set()),  # the pass is over
    ],
    ids=["wrong", "equal", "later"],
)
def test_what_lands_in_a_block_that_is_being_read_is_compared(
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    change: Callable[[Any], None],
    after_ns: int,
    oracles: set[str],
) -> None:
    """Wrong bytes are reported with who wrote them; equal ones, or later ones, are nothing."""
    outcome = outcome_of(monkeypatch, change, after_ns, check)
    found = [v for v in outcome.violations if v.oracle not in ("leak", "release-once")]
    assert {v.oracle for v in found} == oracles
    assert all(v.request_id == "only-d0" for v in found)
