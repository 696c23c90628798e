"""A connector that does nothing but say when it was called, in the event log.

A consumer with ``sync_loads`` claims to have loaded all but the last prompt token.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.logger import init_logger

logger = init_logger(__name__)


class Nothing(KVConnectorMetadata):
    """No metadata."""


def say(name: str) -> None:
    logger.warning("hook %s", name)


class HookRecorder(KVConnectorBase_V1, SupportsHMA):
    """Every hook of the worker, in order."""

    # ------------------------------------------------------------- scheduler

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        transfer = self._kv_transfer_config
        if not transfer.is_kv_consumer or not transfer.get_from_extra_config("sync_loads", False):
            return 0, False
        return request.num_prompt_tokens - 1 - num_computed_tokens, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external: int) -> None:
        """Nothing is loaded."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return Nothing()

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any:
        return False, None

    # ---------------------------------------------------------------- worker

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        say("handle_preemptions")

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        has_metadata = forward_context.attn_metadata is not None
        say("start_load_kv before the forward" if has_metadata else "start_load_kv after it")

    def wait_for_layer_load(self, layer_name: str) -> None:
        say(f"wait_for_layer_load {layer_name}")

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        slots = attn_metadata.slot_mapping
        say(f"save_kv_layer {layer_name} {len(slots)} tokens from slot {int(slots[0])}")

    def finish_forward(self) -> None:
        say("finish_forward")

    def wait_for_save(self) -> None:
        say("wait_for_save")

    def get_finished(self, finished_req_ids: set[str]) -> Any:
        say("get_finished")
        return None, None
