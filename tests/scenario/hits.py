"""What a consumer's vLLM made of each prompt: how much it found, was promised, and computed.

Nothing here is assumed: the figures are those that pass between vLLM's scheduler and the connector,
and where the first forward pass began is the simulator's own record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sim.kernel.log import EventLog
from sim.probes import Probe
from sim.request_ids import logical_id


@dataclass
class Hit:
    """One request on a consumer, when it was admitted for the first time.

    Args:
        prompt: tokens of it.
        local: tokens that vLLM told the connector it had found.
        in_common: tokens of which vLLM had every group, states included.
        external: tokens that vLLM took the connector up on.
        waits: whether it waited for them.
        read: blocks that a load was ordered for, by payload entry; None without a load.
        computed_from: where the first forward pass began.
    """

    prompt: int
    local: int
    in_common: int
    waits: bool
    external: int = -1
    read: tuple[int, ...] | None = None
    computed_from: int = -1

    @property
    def kind(self) -> tuple[str, str, str]:
        """What was found here, whether all groups agreed on it, and what came from outside."""
        found = "none" if self.local == 0 else "partial"
        if 0 < self.local == self.prompt - 1:
            found = "full"
        agreed = "diverged" if self.in_common < self.local else "agreed"
        return found, agreed, {0: "0", 1: "1"}.get(self.external, "many")


class HitProbe(Probe):
    """Listens at the hooks of the consumer's connector and collects the hit of each request."""

    def __init__(self, node: str = "d0") -> None:
        self._node = node
        self.hits: dict[str, Hit] = {}
        self.tokens: dict[str, list[int]] = {}

    def engine_started(self, engine: Any) -> None:
        if engine.name != self._node:
            return
        scheduler = engine.loop.scheduler
        connector, manager = scheduler.connector, scheduler.kv_cache_manager
        ask, allocated = connector.get_num_new_matched_tokens, connector.update_state_after_alloc
        build = connector.build_connector_meta

        def asked(request: Any, local: int) -> tuple[int, bool]:
            in_common = manager.get_computed_blocks(request)[1]
            promised, waits = ask(request, local)
            known = self.hits.get(logical_id(request.request_id))
            if known is None or known.external < 0:  # asked again because blocks were short
                self.hits[logical_id(request.request_id)] = Hit(
                    request.num_prompt_tokens, local, in_common, waits
                )
            return promised, waits

        def was_allocated(request: Any, blocks: Any, num_external: int) -> None:
            hit = self.hits[logical_id(request.request_id)]
            if hit.external < 0:
                hit.external = num_external
            allocated(request, blocks, num_external)

        def built(scheduler_output: Any) -> Any:
            orders = build(scheduler_output)
            for order in orders.loads:
                hit = self.hits[logical_id(order.request_id)]
                hit.read = tuple(len(ids) for ids in order.plan.ours)
            return orders

        connector.get_num_new_matched_tokens = asked
        connector.update_state_after_alloc = was_allocated
        connector.build_connector_meta = built

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self.tokens[request_id] = tokens

    def take_first_passes(self, log: EventLog) -> None:
        """Add where first passes began, from the run's record."""
        for record in log.records:
            if record.kind == "forward-began" and record.fields["node"] == self._node:
                for leg, start, _end in record.fields["requests"]:
                    hit = self.hits[logical_id(leg)]
                    hit.computed_from = start if hit.computed_from < 0 else hit.computed_from
