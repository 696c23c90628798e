"""Who holds which block of an engine, as its own scheduler sees it.

The ledger listens to the KV cache manager's verbs, allocate and free, and passes on what changed,
and for whom there were too few. Blocks that the scheduler takes from a request before a step in
flight is over count as held until they are back in the pool. It changes nothing: the scheduler's
own bookkeeping stays the authority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

OnHeld = Callable[[str, int, list[int]], None]
OnFreed = Callable[[str], None]
OnRefused = Callable[[str], None]


class BlockLedger:
    """Follows one KV cache manager.

    Args:
        manager: vLLM's KVCacheManager; its ``allocate_slots``, ``free`` and
            ``pop_blocks_for_free``, and its pool's ``free_blocks``, are wrapped on this instance.
        on_held: called with request id, group and the block ids new to the request.
        on_freed: called with the request id when it held anything.
        on_refused: called with the request id when it wanted more blocks than there are.
    """

    def __init__(
        self, manager: Any, on_held: OnHeld, on_freed: OnFreed, on_refused: OnRefused
    ) -> None:
        self._managers = manager.coordinator.single_type_managers
        self._known: dict[str, list[int]] = {}
        self._on_held = on_held
        self._on_freed = on_freed
        self._on_refused = on_refused
        self._allocate, self._free = manager.allocate_slots, manager.free
        manager.allocate_slots = self._allocate_slots
        manager.free = self._free_request
        self._deferred: list[tuple[str, list[int]]] = []
        self._pop, self._return = manager.pop_blocks_for_free, manager.block_pool.free_blocks
        manager.pop_blocks_for_free = self._pop_blocks
        manager.block_pool.free_blocks = self._return_blocks

    def _allocate_slots(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = self._allocate(request, *args, **kwargs)
        if blocks is None:
            self._on_refused(request.request_id)
        else:
            self._report_new(request.request_id)
        return blocks

    def _report_new(self, request_id: str) -> None:
        known = self._known.setdefault(request_id, [0] * len(self._managers))
        for group, manager in enumerate(self._managers):
            held = manager.req_to_blocks.get(request_id, ())
            if len(held) > known[group]:
                new = [block.block_id for block in held[known[group] :]]
                known[group] = len(held)
                self._on_held(request_id, group, new)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        result = self._free(request, *args, **kwargs)
        if self._known.pop(request.request_id, None) is not None:
            self._on_freed(request.request_id)
        return result

    def _pop_blocks(self, request: Any) -> Any:
        blocks = self._pop(request)
        if self._known.pop(request.request_id, None) is not None:
            self._deferred.append((request.request_id, [block.block_id for block in blocks]))
        return blocks

    def _return_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        blocks = list(ordered_blocks)
        self._return(blocks)
        if self._deferred:
            returned = [block.block_id for block in reversed(blocks)]
            for entry in [entry for entry in self._deferred if entry[1] == returned]:
                self._deferred.remove(entry)
                self._on_freed(entry[0])


def watch_zeroing(scheduler: Any, on_wanted: Callable[[list[int]], None]) -> None:
    """Call ``on_wanted`` with the blocks that ``scheduler`` has zeroed before each step."""
    if not scheduler.needs_kv_cache_zeroing:
        return
    manager = scheduler.kv_cache_manager
    take = manager.take_new_block_ids

    def take_and_tell() -> list[int]:
        block_ids: list[int] = take()
        if block_ids:
            on_wanted(list(block_ids))
        return block_ids

    manager.take_new_block_ids = take_and_tell
