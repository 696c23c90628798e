"""Liveness: nothing waits for ever, nobody dies of it, and once all is well all goes well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.oracles.base import NORMAL_OUTCOMES, Oracle, OracleContext, RunFacts
from sim.oracles.starved_queue import STARVED_QUEUE, starved_legs
from sim.oracles.words import seconds
from sim.request_ids import logical_id


class Liveness(Oracle):
    """O6. Kinds: ``not-ended``, ``engine-died``, ``not-recovered``, ``starved-queue``."""

    name = "liveness"
    summary = "Every request ends, engines live, and after the faults requests succeed"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._open: dict[str, int] = {}
        self._quiet_since_ns: int | None = None

    def request_started(self, request_id: str) -> None:
        self._open[request_id] = self.kernel.now_ns

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        started_ns = self._open.pop(request_id)
        quiet_ns = self._quiet_since_ns
        if quiet_ns is None or started_ns < quiet_ns or outcome in NORMAL_OUTCOMES:
            return
        self.report(
            f"{request_id} was sent at {seconds(started_ns)}, when nothing was broken any more, "
            f"and ended with {outcome!r}",
            request_id=request_id,
            kind="not-recovered",
            outcome=outcome,
        )

    def quiet_phase_began(self) -> None:
        self._quiet_since_ns = self.kernel.now_ns

    def engine_died(
        self, node: str, reason: str, *, injected: bool, traceback: Sequence[str]
    ) -> None:
        if not injected:
            self.report(
                f"{node} died: {reason}",
                node=node,
                kind="engine-died",
                reason=reason,
                traceback=list(traceback),
            )

    def finish(self, run: RunFacts) -> None:
        starved = {
            logical_id(leg): engine.name
            for engine in run.engines
            for leg in starved_legs(engine, self.context.blocks)
        }
        for request_id, started_ns in self._open.items():
            node = starved.get(request_id)
            why = f"; the queue of {node} is starved, by loads that failed together" if node else ""
            self.report(
                f"{request_id}, sent at {seconds(started_ns)}, has not ended by "
                f"{seconds(self.kernel.now_ns)}{why}",
                request_id=request_id,
                kind=STARVED_QUEUE if node else "not-ended",
            )
