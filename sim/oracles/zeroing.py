"""Zeroing: vLLM's zeroing of new blocks wipes nothing that was loaded, and leaves nothing out.

What was wiped counts when a forward pass reads it: what was written again by then, as after a load
that failed, is nobody's loss. What was left out counts at the end, when the step that should have
zeroed it is long over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.model.footprint import Integers
from sim.oracles.base import Oracle, OracleContext, RunFacts
from sim.oracles.words import block_list
from sim.probes import StepTimes

_NEVER = -1
_STEPS_IN_FLIGHT = 3  # more than an engine has at once


class _Rank:
    """What is known of each block of a rank.

    ``loaded`` and ``wiped``, by layer: the generation in which bytes landed, and in which they
    were zeroed after that. ``as_left``: the version that landings and zeroings left behind, so
    that another one means that a forward pass has written since. ``wanted``: the engine's step
    for which it was to be zeroed.
    """

    def __init__(self, memory: Any, num_blocks: int) -> None:
        self.versions: Integers = memory.versions
        self.loaded: dict[int, Integers] = {}
        self.wiped: dict[int, Integers] = {}
        self.as_left = self._fresh(num_blocks)
        self.wanted = self._fresh(num_blocks)

    @staticmethod
    def _fresh(num_blocks: int) -> Integers:
        return np.full(num_blocks, _NEVER, dtype=np.int64)

    def landed(self, layers: Integers, ids: Integers, generations: Integers) -> None:
        for layer in np.unique(layers).tolist():
            here = ids[layers == layer]
            if layer not in self.loaded:
                for marks in (self.loaded, self.wiped):
                    marks[layer] = self._fresh(len(self.wanted))
            self.loaded[layer][here] = generations[here]
            self.wiped[layer][here] = _NEVER
        self.as_left[ids] = self.versions[ids]
        self.wanted[ids] = _NEVER

    def zeroed(self, ids: Integers, generations: Integers) -> None:
        for layer, loaded in self.loaded.items():
            wiped = ids[loaded[ids] == generations[ids]]
            self.wiped[layer][wiped] = generations[wiped]
        self.as_left[ids] = self.versions[ids]
        self.wanted[ids] = _NEVER

    def wiped_among(self, ids: Integers, generations: Integers) -> Integers:
        """The blocks that have lost loaded bytes to a zeroing, and got nothing since."""
        is_wiped = np.zeros(len(ids), dtype=bool)
        for wiped in self.wiped.values():
            is_wiped |= wiped[ids] == generations[ids]
        lost: Integers = ids[is_wiped & (self.as_left[ids] == self.versions[ids])]
        return lost


class Zeroing(Oracle):
    """O9. Kinds: ``loaded-then-zeroed``, ``not-zeroed``."""

    name = "zeroing"
    summary = "Zeroing of new blocks wipes nothing that was loaded and leaves none out"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._ranks: dict[str, list[_Rank]] = {}
        self._steps: dict[str, int] = {}

    def engine_started(self, engine: Any) -> None:
        self._steps[engine.name] = 0
        self._ranks[engine.name] = [
            _Rank(worker.memory, engine.num_blocks)
            for worker in sorted(engine.workers, key=lambda worker: worker.rank)
        ]

    def step_done(self, step: StepTimes) -> None:
        self._steps[step.node] += 1

    def steps_skipped(self, count: int, last: StepTimes) -> None:
        self._steps[last.node] += count

    def zeroing_wanted(self, node: str, block_ids: list[int]) -> None:
        for rank in self._ranks[node]:
            rank.wanted[np.array(block_ids)] = self._steps[node]

    def blocks_zeroed(self, node: str, rank: int, block_ids: list[int]) -> None:
        self._ranks[node][rank].zeroed(np.array(block_ids), self._generations(node))

    def after_landing(self, landing: Any) -> None:
        landed = self.context.blocks.landed
        if landed is None:
            return
        place, touched = landed.destination, landed.destination.touched
        of_rank = self._ranks[place.node][place.rank]
        of_rank.landed(touched.layer_index, touched.block_id, self._generations(place.node))

    def blocks_read(self, node: str, rank: int, request_id: str, group: int, blocks: Any) -> None:
        wiped = self._ranks[node][rank].wiped_among(blocks, self._generations(node))
        if len(wiped):
            self.report(
                f"a forward pass of {request_id} on {node} rank {rank} used "
                f"{block_list(wiped.tolist())}, zeroed after a transfer had brought their content",
                node=node,
                request_id=request_id,
                kind="loaded-then-zeroed",
                rank=rank,
                block_ids=wiped.tolist(),
            )

    def finish(self, run: RunFacts) -> None:
        for engine in run.engines:
            if engine.alive and engine.name in self._ranks:
                for number, rank in enumerate(self._ranks[engine.name]):
                    self._judge_left_out(engine.name, number, rank)

    def _judge_left_out(self, node: str, number: int, rank: _Rank) -> None:
        over = self._steps[node] - _STEPS_IN_FLIGHT
        left_out = np.flatnonzero((rank.wanted != _NEVER) & (rank.wanted <= over)).tolist()
        if left_out:
            self.report(
                f"vLLM wanted {block_list(left_out)} of {node} rank {number} zeroed when they "
                "were new, and they were neither zeroed nor loaded",
                node=node,
                kind="not-zeroed",
                rank=number,
                block_ids=left_out,
            )

    def _generations(self, node: str) -> Integers:
        return self.context.blocks.node(node).generation
