"""What a consumer's vLLM made of each prompt: how much it found, was promised and computed.

Nothing here is assumed: the figures are those that pass between vLLM's scheduler and the connector,
the first pass is the simulator's own record, and the blocks read are those that landed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.kernel.log import EventLog
from sim.probes import Probe
from sim.request_ids import leg_of


@dataclass
class Hit:
    """One request on a consumer.

    Args:
        local: tokens that vLLM told the connector it had found.
        promised: tokens that the connector answered.
        is_async: whether the request was to wait for them.
        external: tokens that vLLM took the connector up on.
        in_common: tokens of which vLLM had every group, state included.
        computed_from: where the first pass began.
        zeroed: new blocks of the request that vLLM was left to zero.
    """

    local: int
    promised: int
    is_async: bool
    in_common: int
    external: int | None = None
    computed_from: int | None = None
    read: dict[int, set[int]] = field(default_factory=dict)
    """Blocks that reads filled, by group."""
    held: dict[int, list[int]] = field(default_factory=dict)

    @property
    def diverged(self) -> bool:
        """Whether attention was found further than the state was."""
        return self.in_common < self.local


class HitProbe(Probe):
    """Listens at the hooks of one consumer's connector.

    Args:
        node: the consumer.
    """

    def __init__(self, node: str = "d0") -> None:
        self._node = node
        self.hits: dict[str, Hit] = {}
        """The last hit of each leg, in order of admission."""

    def engine_started(self, engine: Any) -> None:
        if engine.name != self._node:
            return
        scheduler = engine.loop.scheduler
        connector, manager = scheduler.connector, scheduler.kv_cache_manager
        ask, allocated = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

        def asked(request: Any, local: int) -> tuple[int, bool]:
            in_common = manager.get_computed_blocks(request)[1]
            promised, is_async = ask(request, local)
            if request.num_preemptions == 0:
                self.hits[leg_of(request.request_id)] = Hit(local, promised, is_async, in_common)
            return promised, is_async

        def was_allocated(request: Any, blocks: Any, num_external: int) -> None:
            hit = self.hits[leg_of(request.request_id)]
            if hit.external is None:
                hit.external = num_external
            allocated(request, blocks, num_external)

        connector.get_num_new_matched_tokens = asked
        connector.update_state_after_alloc = was_allocated

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        if node == self._node and request_id in self.hits:
            self.hits[request_id].held.setdefault(group, []).extend(block_ids)

    def take_first_passes(self, log: EventLog) -> None:
        """Add where first passes began, from the run's record."""
        for record in log.records:
            if record.kind != "forward-began" or record.fields["node"] != self._node:
                continue
            for request_id, start, _end in record.fields["requests"]:
                if request_id in self.hits and self.hits[request_id].computed_from is None:
                    self.hits[request_id].computed_from = start
