"""Leak: when everything has come to rest, every block pool is at its idle size.

It counts vLLM's own pool and scheduler. What a connector keeps in its own tables is not seen.
"""

from __future__ import annotations

from typing import Any

from sim.oracles.base import Oracle, RunFacts
from sim.oracles.starved_queue import STARVED_QUEUE, starved_legs
from sim.oracles.words import seconds
from sim.request_ids import leg_of


class Leak(Oracle):
    """O3. Kinds: none, or ``starved-queue``."""

    name = "leak"
    summary = "At rest no engine holds a block, and no request is left in a scheduler"

    def finish(self, run: RunFacts) -> None:
        for engine in run.engines:
            if engine.alive and engine.loop is not None:
                self._judge(engine)

    def _judge(self, engine: Any) -> None:
        scheduler = engine.loop.scheduler
        pool = scheduler.kv_cache_manager.block_pool
        idle = pool.num_gpu_blocks - 1  # the null block is never free
        free = pool.get_num_free_blocks()
        left = {
            leg_of(request_id): "ended" if request.is_finished() else "unfinished"
            for request_id, request in scheduler.requests.items()
        }
        if free == idle and not left:
            return
        num_starved = len(starved_legs(engine, self.context.blocks))
        self.report(
            f"{engine.name} at rest: {idle - free} of {idle} blocks are not free; "
            + (self._held(engine.name, left) or "no request is left that could hold them"),
            node=engine.name,
            free=free,
            idle=idle,
            requests=left,
            **({"kind": STARVED_QUEUE} if 0 < num_starved == len(scheduler.requests) else {}),
        )

    def _held(self, node: str, left: dict[str, str]) -> str:
        blocks = self.context.blocks.node(node)
        parts = []
        for request_id, state in left.items():
            held = blocks.held_by(request_id)
            since = f" since {seconds(int(blocks.since_ns[held].min()))}" if len(held) else ""
            parts.append(f"{request_id} ({state}) holds {len(held)}{since}")
        return ", ".join(parts)
