"""Groups of vLLM's own: no connector can help falling into them, so no campaign fails for them.

They are counted and shown as known. An entry names no more than what tells the defect from any
connector's, and goes when vLLM no longer has it. What makes a starved queue vLLM's is said at
``starved_queues``.
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.oracles.starved_queue import STARVED_QUEUE
from sim.probes import OF_ANOTHER_CONTINUATION

_PAGE = "docs/findings.md"

VLLM_DEFECTS: Mapping[str, str] = {
    **dict.fromkeys(
        (f"wrong-bytes/{OF_ANOTHER_CONTINUATION}/{side}" for side in ("producer", "consumer")),
        f"{_PAGE}#with-a-connector-prefix-caching-mixes-drafters-rows",
    ),
    **dict.fromkeys(
        (f"liveness/{STARVED_QUEUE}", f"leak/{STARVED_QUEUE}/consumer"),
        f"{_PAGE}#loads-that-failed-together-starve-the-first-of-them",
    ),
}
"""By group, where it is explained."""
