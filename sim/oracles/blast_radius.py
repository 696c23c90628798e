"""Blast radius: one failed transfer ends at most the requests whose transfer it is.

A request is innocent when all that was posted for it has succeeded, it got bytes, it holds no block
that a failed transfer was to fill, and no load of it is reported as failed. What was lost without a
word is not known to have succeeded, so its request is not innocent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.model.footprint import Integers
from sim.oracles.base import Oracle, OracleContext
from sim.oracles.words import seconds
from sim.request_ids import logical_id

_SUCCESS = "SUCCESS"


class BlastRadius(Oracle):
    """O7. Kinds: ``innocent-ended``, ``engine-died``."""

    name = "blast-radius"
    summary = "One failed transfer ends at most its own request, and no engine"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._open: dict[Any, None] = {}
        """Work-request chains of which nobody has heard yet."""
        self._failed: dict[str, tuple[int, str]] = {}
        """By request that had a failing transfer: when, and how it ended."""
        self._ended: dict[str, None] = {}
        self._landed: dict[str, Integers] = {}
        self._spoilt: dict[str, Integers] = {}
        """Of each block the generation in which bytes landed, or a transfer failed, or -1."""
        self._held: dict[str, list[tuple[str, list[int]]]] = {}
        self._loaded: dict[str, None] = {}
        self._load_failed: dict[str, None] = {}
        """Requests whose load failed, as the connector says, whatever it failed of."""

    def engine_started(self, engine: Any) -> None:
        for of_blocks in (self._landed, self._spoilt):
            of_blocks[engine.name] = np.full(engine.num_blocks, -1, dtype=np.int64)

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        self._held.setdefault(logical_id(request_id), []).append((node, block_ids))

    def after_landing(self, landing: Any) -> None:
        landed = self.context.blocks.landed
        if landed is not None:
            node, ids = landed.destination.node, landed.destination.touched.block_id
            self._landed[node][ids] = self.context.blocks.node(node).generation[ids]

    def transfer_posted(self, chain: Any) -> None:
        if chain.signaled:
            self._open[chain] = None

    def transfer_ended(self, chain: Any, status: str) -> None:
        self._open.pop(chain, None)
        if status == _SUCCESS:
            return
        found = self.context.blocks.blocks_of(chain)
        if found is None:
            return
        node, ids = found
        blocks = self.context.blocks.node(node)
        self._spoilt[node][ids] = blocks.generation[ids]
        for request in self._owners(node, ids):
            self._failed.setdefault(request, (self.kernel.now_ns, status))

    def receiving_finished(self, node: str, rank: int, request_id: str, *, failed: bool) -> None:
        reported = self._load_failed if failed else self._loaded
        reported[logical_id(request_id)] = None

    def blocks_not_loaded(self, node: str, rank: int, block_ids: list[int]) -> None:
        """Of loads that a step waits for; another's end is reported as such, before its blocks."""
        for request, held in self._held.items():
            ids = [block for where, blocks in held if where == node for block in blocks]
            is_known = request in self._ended or request in self._loaded
            if not is_known and not set(block_ids).isdisjoint(ids):
                self._load_failed[request] = None

    # ---------------------------------------------------------------- verdicts

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self._ended[request_id] = None
        others = [request for request in self._failed if request != request_id]
        if outcome != "error" or not others or not self._is_innocent(request_id):
            return
        culprit = others[-1]
        at_ns, status = self._failed[culprit]
        self.report(
            f"{request_id} ended with an error although all of its own transfers succeeded; "
            f"a transfer of {culprit} had ended with {status} at {seconds(at_ns)}",
            request_id=request_id,
            kind="innocent-ended",
            culprit=culprit,
            status=status,
        )

    def engine_died(self, node: str, reason: str, *, injected: bool, traceback: Any = ()) -> None:
        under_way = [request for request in self._failed if request not in self._ended]
        if injected or not under_way:
            return
        at_ns, status = self._failed[under_way[-1]]
        self.report(
            f"{node} died ({reason}) while a request had a failed transfer: one of "
            f"{under_way[-1]} had ended with {status} at {seconds(at_ns)}",
            node=node,
            kind="engine-died",
            culprit=under_way[-1],
            status=status,
        )

    def _is_innocent(self, request: str) -> bool:
        if request in self._failed or request in self._load_failed:
            return False
        held = [(node, np.array(ids)) for node, ids in self._held.get(request, ())]
        if not any(self._marked(self._landed, node, ids) for node, ids in held):
            return False
        if any(self._marked(self._spoilt, node, ids) for node, ids in held):
            return False
        return not any(request in self._owners_of_chain(chain) for chain in self._open)

    def _marked(self, marks: dict[str, Integers], node: str, ids: Integers) -> bool:
        return bool((marks[node][ids] == self.context.blocks.node(node).generation[ids]).any())

    def _owners_of_chain(self, chain: Any) -> list[str]:
        found = self.context.blocks.blocks_of(chain)
        return [] if found is None else self._owners(*found)

    def _owners(self, node: str, ids: Integers) -> list[str]:
        """Whose the blocks are, or were last."""
        blocks = self.context.blocks.node(node)
        owners = np.unique(blocks.owner[ids]).tolist()
        return [logical_id(blocks.requests[n]) for n in owners if n >= 0]
