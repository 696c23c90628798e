"""A speculating simulator that is broken on purpose is noticed, and a broken drafter seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.engine import drafter
from sim.engine.attention import AttentionGroup
from sim.engine.batch import Batch, Chunk
from sim.engine.drafter import DrafterGroup
from sim.engine.forward import SyntheticModel
from sim.engine.state_copies import copy_after
from sim.model.speculation import after_hand_off
from sim.model.state_content import state_bytes
from sim.model.state_window import row_hashes
from sim.outcome import Outcome
from sim.run import TestBed, run
from sim.scenario import (
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    UniformWorkload,
    with_settings,
)
from sim.units import MS
from sim.workload import Segment

ALONE = Topology(colocated=True)
LONG = UniformWorkload(
    requests=2, prompt_tokens=(100, 140), output_tokens=(300, 320), interval_ms=5.0
)


def outcome_of(
    model: str,
    method: str,
    workload: Any = LONG,
    prepare: Callable[[TestBed], None] | None = None,
    **settings: str,
) -> Outcome:
    scenario = with_settings(
        Scenario(model=model, workload=workload, topology=ALONE),
        {"speculation.method": method, "num_speculative_tokens": "3", **settings},
    )
    return run(scenario, prepare=prepare).outcome


def fired(outcome: Outcome) -> set[str]:
    return {violation.oracle for violation in outcome.violations}


def flip_a_row(bed: TestBed) -> None:
    """One byte of the drafter's layer, in a block that the first request goes on reading."""

    def flip() -> None:
        memory = bed.engines[0].workers[0].memory
        assert memory is not None
        memory.caches.slots("model.layers.3.self_attn.attn")[1, 5, 0, 0] ^= 1
        memory.wrote([1], bed.kernel.now_ns, lambda: "a cosmic ray")

    bed.kernel.call_later(60 * MS, flip)


@pytest.mark.parametrize("check", ["incremental", "full"])
def test_a_corrupted_row_of_the_drafter_costs_acceptance_and_nothing_else(check: str) -> None:
    """It is reported as wrong bytes, with the drafter's layer; the output stays right."""
    right = outcome_of("deepseek-mla", "mtp", check=check)
    assert fired(right) == set()
    wrong = outcome_of("deepseek-mla", "mtp", prepare=flip_a_row, check=check)
    assert fired(wrong) == {"wrong-bytes"}
    (violation,) = wrong.violations
    assert violation.evidence["layer"] == "model.layers.3.self_attn.attn"
    assert violation.evidence["tokens"] == [5, 5]
    assert right.speculation is not None
    assert wrong.speculation is not None
    assert wrong.speculation.rate < right.speculation.rate / 2


def misplaced_states(monkeypatch: pytest.MonkeyPatch, *, keeps: bool) -> list[bool]:
    """For each end of a block that a step crossed with its drafts, whether the block that prefix
    caching will take the state from holds another one. In the runs here vLLM never finds a hit
    there, so no pass of another request reads it."""
    keep_states = SyntheticModel.keep_states
    misplaced: list[bool] = []

    def checked(self: SyntheticModel, batch: Batch) -> None:
        size = self.state_groups[0].block_size
        states = [(c.state, c.state.state_column, c.state.num_accepted) for c in batch.chunks]
        copies = [copy_after(col, count, st.computed, size) for st, col, count in states]
        if keeps:
            keep_states(self, batch)
        for chunk, copy in zip(batch.chunks, copies, strict=True):
            if copy is None or copy.source == copy.target:
                continue
            tokens = (copy.target + 1) * size
            for group in self.state_groups:
                block_id = chunk.state.tables[group.index].ids[copy.target]
                for layer, layout in group._layers.items():
                    page = group._states[layer][block_id]
                    rows = state_bytes(row_hashes(chunk.tokens, tokens, 3), layout.row)
                    matrix = state_bytes(row_hashes(chunk.tokens, tokens, 1), layout.matrix)[0]
                    is_right = np.array_equal(page[layout.row_bytes[:3]], rows)
                    is_right &= np.array_equal(page[layout.matrix_bytes], matrix)
                    misplaced.append(not is_right)

    monkeypatch.setattr(SyntheticModel, "keep_states", checked)
    assert fired(outcome_of("qwen-hybrid", "mtp")) == set()
    return misplaced


def test_the_state_at_the_end_of_a_block_is_kept_for_prefix_caching(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though the running state, and the drafts behind it, are in the next block by then."""
    misplaced = misplaced_states(monkeypatch, keeps=True)
    assert len(misplaced) > 20
    assert not any(misplaced)


def test_a_simulator_that_skips_the_copy_after_a_step_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The counterpart: the block holds an earlier state."""
    assert any(misplaced_states(monkeypatch, keeps=False))


def test_a_simulator_that_takes_the_wrong_state_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of a step, whatever was accepted."""
    carry_over = SyntheticModel.carry_over

    def without_offset(self: SyntheticModel, batch: Batch) -> None:
        carry_over(self, batch)
        for chunk in batch.chunks:
            chunk.offset = 0

    monkeypatch.setattr(SyntheticModel, "carry_over", without_offset)
    assert "wrong-bytes" in fired(outcome_of("kimi-linear", "dspark"))


def test_a_simulator_that_leaves_rows_of_rejected_drafts_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next step has to write over the first of them, which the one after it reads."""
    positions = AttentionGroup._positions

    def without_the_first(self: AttentionGroup, chunk: Chunk) -> Any:
        return tuple(part[bool(chunk.num_drafts) :] for part in positions(self, chunk))

    monkeypatch.setattr(AttentionGroup, "_positions", without_the_first)
    assert "wrong-bytes" in fired(outcome_of("deepseek-mla", "mtp"))


def test_a_drafter_that_forgets_the_next_token_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows made of the prefix alone are not MTP's."""
    rows_of_step = drafter.rows_of_step

    def without_next_token(chunk: Chunk, drafts: int, lookahead: int) -> Any:
        first, *rest = rows_of_step(chunk, drafts, lookahead)
        hashes = chunk.tokens.hashes[chunk.start : chunk.start + len(first.hashes)]
        return [replace(first, hashes=hashes), *rest]

    monkeypatch.setattr(drafter, "rows_of_step", without_next_token)
    assert "wrong-bytes" in fired(outcome_of("deepseek-mla", "mtp"))


@pytest.mark.parametrize("first", [200, 300])
def test_a_row_of_another_continuation_is_wrong_where_no_prompt_was_cut(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Also where one client's prompt is another's without the last token: nothing but a prompt
    that the connector itself made shorter excuses the row."""
    write_rows = DrafterGroup.write_rows

    def go_on_as_sampled(self: DrafterGroup, batch: Batch, drafts: int) -> None:
        write_rows(self, batch, drafts)
        for chunk in batch.chunks:
            if chunk.state.request_id != "second-p0" or chunk.end != 301:
                continue
            prefix = chunk.tokens.prefix_hash(300)
            sampled = after_hand_off(prefix, 300, self._engine.world.vocab_size)
            column, offset = divmod(299, self.block_size)
            self._scatter(
                self._layers,
                self._table(chunk).ids[[column]],
                np.array([offset]),
                np.array([sampled], dtype=np.uint64),
            )

    monkeypatch.setattr(DrafterGroup, "write_rows", go_on_as_sampled)
    requests = (
        InlineRequest("first", (Segment(1, first),), 4, arrival_s=0.0),
        InlineRequest("second", (Segment(1, 300), Segment(2, 1)), 40, arrival_s=0.3),
    )
    handed_over = {"topology.colocated": "false", "connector": "reference"}
    outcome = outcome_of("deepseek-mla", "mtp", InlineWorkload(requests), **handed_over)
    assert fired(outcome) == {"wrong-bytes"}
    assert {tuple(v.evidence["tokens"]) for v in outcome.violations} == {(299, 299)}
