"""Release once: each rank of a producer reports once that the blocks of a request may go.

A producer may also take blocks back by itself, when a lease runs out; then nobody has to report
anything. Only blocks that are still held at the end lack a report.
"""

from __future__ import annotations

from typing import Any

from sim.oracles.base import Oracle, OracleContext, RunFacts
from sim.oracles.words import seconds
from sim.request_ids import leg_kind, leg_of


class ReleaseOnce(Oracle):
    """O5."""

    name = "release-once"
    summary = "Each rank releases the blocks of a request exactly once"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._reported_ns: dict[str, dict[tuple[str, int], int]] = {}

    def engine_started(self, engine: Any) -> None:
        self._reported_ns[engine.name] = {}

    def sending_finished(self, node: str, rank: int, request_id: str) -> None:
        reported = self._reported_ns[node]
        first_ns = reported.get((request_id, rank))
        if first_ns is None:
            reported[request_id, rank] = self.kernel.now_ns
            return
        self.report(
            f"{node} rank {rank} released {request_id} again; "
            f"the first time was at {seconds(first_ns)}",
            node=node,
            request_id=request_id,
            kind="released-again",
            rank=rank,
        )

    def finish(self, run: RunFacts) -> None:
        for engine in run.engines:
            if engine.alive and engine.loop is not None:
                self._judge(engine)

    def _judge(self, engine: Any) -> None:
        for request_id, request in engine.loop.scheduler.requests.items():
            if leg_kind(request_id) == "p" and request.is_finished():
                self._judge_leg(engine, leg_of(request_id))

    def _judge_leg(self, engine: Any, request_id: str) -> None:
        reported = self._reported_ns[engine.name]
        ranks = range(engine.options.tp_size)
        missing = [rank for rank in ranks if (request_id, rank) not in reported]
        if missing:
            self.report(
                f"{engine.name} still holds the blocks of {request_id}, which has ended, because "
                f"rank {', '.join(map(str, missing))} never released them",
                node=engine.name,
                request_id=request_id,
                kind="never-released",
                ranks=missing,
            )
