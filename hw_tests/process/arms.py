"""What engines in processes run on, by the names of ``--arm``."""

from __future__ import annotations

from typing import NamedTuple

from hw_tests.process.messages import Device


class ProcessArm(NamedTuple):
    """The memory and the library of two engines.

    Args:
        device: where their caches are.
        stands_in: whether mori and the GPU are stood in for.
        features: ``held-reads``: reads can be kept under way until a test has done its part;
            ``proxies``: a test can stand between engines, because all are on its machine.
    """

    device: Device
    stands_in: bool
    features: frozenset[str]


PROCESS_ARMS = {
    "sim": ProcessArm("shared", stands_in=True, features=frozenset({"held-reads", "proxies"})),
    "rocm": ProcessArm("cuda", stands_in=False, features=frozenset({"proxies"})),
}

PRELOADED = (
    "hw_tests.process.engine",
    "connector.hybrid",
    "vllm.model_executor.layers.fused_moe",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.worker_base",
)
"""What an engine needs most of its start for."""
