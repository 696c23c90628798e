"""Somebody else who wants the KV cache."""

from __future__ import annotations

from typing import ClassVar

from faults.fault import CannotStrike, Heal, LastingFault, Whole
from faults.scene import Scene


class SmallPool(LastingFault, frozen=True, tag="small-pool"):
    """An engine's block pool shrinks to ``leave`` free blocks: prefixes go, requests wait.

    Running requests that need more are preempted, and waiting ones wait until it is healed.
    """

    leave: Whole = 0

    takes: ClassVar[tuple[str, ...]] = ("node",)

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        if engine.loop is None:
            raise CannotStrike(f"{engine.name} is starting")
        pool = engine.loop.scheduler.kv_cache_manager.block_pool
        taken = pool.get_new_blocks(max(0, pool.get_num_free_blocks() - self.leave))
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name, blocks=len(taken))
        return lambda: pool.free_blocks(taken)
