"""An example of a connector under test: vLLM's MoRIIO connector with a lease on the hand-off.

The producer says until when it keeps a request's blocks. A consumer that comes later than that
prefills the prompt itself instead of reading blocks that may be somebody else's by now. Both ends
compare with their wall clocks, so the margin has to cover the difference between them.
"""

from __future__ import annotations

import time
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector import MoRIIOConnector

KEEP_S = 60.0  # the connector's default of defer_timeout
MARGIN_S = 5.0


class LeaseConnector(MoRIIOConnector):
    """Refuses to read what the producer may have freed."""

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, Any]:
        """On the producer: add the end of the lease to what the router passes on."""
        keep, params = super().request_finished_all_groups(request, block_ids)
        if keep:
            params["lease_ends_s"] = time.time() + KEEP_S
        return keep, params

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        """On the consumer: a lease that has run out means that there is nothing to load."""
        params = request.kv_transfer_params or {}
        if time.time() > params.get("lease_ends_s", float("inf")) - MARGIN_S:
            params["do_remote_prefill"] = False
        return super().get_num_new_matched_tokens(request, num_computed_tokens)
