"""The reference connector: what a P/D connector has to do, with nothing that could go wrong.

It shows that the rules of the testbed can be kept, so a rule that fires here is a false alarm. It
is also the shortest complete example of a connector, and says why each step has to be.

The producer copies a request's blocks when the request ends, and gives them back at once. The
consumer loads all that its prefix cache has not got, while the request waits, and computes the
last token of the prompt itself. Both ends need the same tensor-parallel size; between others, and
without a copy, the consumer prefills.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import back_door  # the simulator's (sim/reference/back_door.py); no module of this name exists
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.request import RequestStatus


@dataclass(frozen=True)
class Load:
    """What one request needs: by cache group, places of its block table and the blocks there."""

    request_id: str
    copy: int
    placements: list[list[tuple[int, int]]]


@dataclass
class Loads(KVConnectorMetadata):
    """What the scheduler half tells the worker half in a step."""

    loads: list[Load] = field(default_factory=list)


class ReferenceConnector(KVConnectorBase_V1, SupportsHMA):
    """Both halves; each engine has one object of either role."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        self._next = Loads()
        self._ended: set[str] = set()
        self._failed: set[str] = set()

    # ------------------------------------------- scheduler half, on a producer

    def on_new_request(self, request: Any) -> None:
        """Leave the last token of the prompt to the consumer, which computes it in any case.

        It needs the recurrent states *before* that token, and a sliding window that begins one
        token earlier than the producer's would. Where nothing is dropped as the prompt goes on,
        the whole prompt is as good, and better for a drafter, which looks one token ahead. A
        prompt of one token leaves nothing to prefill for anybody else.
        """
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_decode"):
            return
        if request.num_prompt_tokens == 1:
            params["do_remote_decode"] = False
        elif any(map(_drops_tokens, self._specs)):
            request.prompt_token_ids.pop()
            request._all_token_ids.pop()
            request.num_prompt_tokens -= 1

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """The end of a request. Its output is here, but what the device writes to its blocks may
        not be, so the copy waits for the device."""
        params = request.kv_transfer_params or {}
        if request.status != RequestStatus.FINISHED_LENGTH_CAPPED:
            return False, None
        if not params.get("do_remote_decode"):
            return False, None
        return False, {"copy": back_door.keep(request.request_id, block_ids)}

    # ------------------------------------------- scheduler half, on a consumer

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """All but the last token, asynchronously: the request runs when they are there.

        vLLM asks again when a request was preempted, or its load failed.
        """
        copy = (request.kv_transfer_params or {}).get("copy")
        if copy is None or not back_door.can_load(copy):
            return 0, False
        missing = max(request.num_prompt_tokens - 1 - num_computed_tokens, 0)
        return missing, missing > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Blocks are allocated; with 0 external tokens there is nothing to load."""
        if num_external_tokens == 0:
            return
        end = request.num_prompt_tokens - 1
        placements = [
            _placement(spec, table, end - num_external_tokens, end)
            for spec, table in zip(self._specs, blocks.get_block_ids(), strict=True)
        ]
        copy = request.kv_transfer_params["copy"]
        self._next.loads.append(Load(request.request_id, copy, placements))

    def build_connector_meta(self, scheduler_output: Any) -> Loads:
        """What was allocated in this step."""
        loads, self._next = self._next, Loads()
        return loads

    # -------------------------------------------------- worker half, consumer

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load now, and wait for the device first: what is queued on it may be a write to these
        blocks, from their previous owner's time."""
        loads: Loads = self._get_connector_metadata()
        if loads.loads:
            torch.cuda.synchronize()
        for load in loads.loads:
            if not back_door.load(load.copy, load.placements):
                self._failed.add(load.request_id)
            self._ended.add(load.request_id)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Each load is reported once, also when its request has ended meanwhile: until then vLLM
        keeps the blocks."""
        ended, failed = self._ended, self._failed
        self._ended, self._failed = set(), set()
        return KVConnectorTransferResults(finished_recving=ended, failed_recving=failed)

    # Nothing happens layer by layer, and nothing has to be waited for.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """The back door knows the caches."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A load is over before its request runs."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kw: Any) -> None:
        """The copy is made at the end."""

    def wait_for_save(self) -> None:
        """The copy is made at the end."""


def _drops_tokens(spec: Any) -> bool:
    """Whether a group keeps less than the entries of all tokens."""
    return isinstance(spec, MambaSpec) or getattr(spec, "sliding_window", None) is not None


def _placement(spec: Any, table: list[int], start: int, end: int) -> list[tuple[int, int]]:
    """The blocks of a group that have to be filled for tokens ``start`` to ``end``.

    Blocks before ``start`` are prefix-cache hits that others may be reading. Null blocks stand for
    what lies before a sliding window, and for states that are not kept. A group that is never in
    the prefix cache has one block, which is needed whatever was hit.
    """
    first, last = 0, len(table)
    if spec.prefix_cacheable:
        first, last = start // spec.block_size, -(-end // spec.block_size)
    return [(place, table[place]) for place in range(first, last) if table[place] != 0]
