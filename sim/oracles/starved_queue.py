"""vLLM's queue, where loads that failed together starve the first of them (docs/findings.md).

A request whose load has ended keeps its blocks until the scheduler comes to it, and it comes to
nobody behind one that wants more blocks than are free. The connector has told all by then.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from sim.oracles.blocks import NULL_BLOCK, BlockHistory
from sim.request_ids import leg_of

STARVED_QUEUE = "starved-queue"
"""The kind of what follows from it, whichever rule that breaks."""


def starved_legs(engine: Any, history: BlockHistory) -> list[str]:
    """All requests of ``engine`` (sim.engine.Engine) if its queue is starved, else none.

    It is if nobody runs, the last to ask for blocks was a request that has given back those of its
    load, and asked in vain, and others whose loads have ended hold every block that is not free.
    So it is not if anything else keeps a block: a load that goes on, or a request that has ended.
    """
    if not engine.alive or engine.loop is None:
        return []
    scheduler, refused = engine.loop.scheduler, history.node(engine.name).refused
    manager, has_ended = scheduler.kv_cache_manager, scheduler.finished_recving_kv_req_ids
    held = {
        request.request_id: {*chain(*manager.get_block_ids(request.request_id))} - {NULL_BLOCK}
        for request in scheduler.kv_holding_waiting
    }
    is_refused = any(leg_of(name) == refused for name in held)
    idle = {*chain(*(blocks for name, blocks in held.items() if name in has_ended))}
    taken = manager.block_pool.num_gpu_blocks - 1 - manager.block_pool.get_num_free_blocks()
    if scheduler.running or not is_refused or not idle or len(idle) != taken:
        return []
    unfinished = (name for name, one in scheduler.requests.items() if not one.is_finished())
    return [*map(leg_of, unfinished)]
