"""The real library as an arm of the conformance suite: memory of two GPUs, over RDMA and XGMI.

Unverified on hardware: it was only ever run with a stand-in for torch's GPU memory.
"""

from __future__ import annotations

from typing import Any

import torch

from hw_tests.arms.real import RealArm
from hw_tests.conformance.arm import Pair


class RocmArm(RealArm):
    """Engines of one process; the initiator's memory is the first GPU's, the target's the second's.

    Nothing is injected, because NIC and driver are real; a "crash" is the end of the target's
    backend.
    """

    def gpu_pair(
        self,
        size: int,
        *,
        backends: tuple[str, ...] = ("XGMI",),
        rdma: dict[str, int] | None = None,
    ) -> Pair:
        return self._pair(size, backends, [{"enable_notification": 0, **(rdma or {})}] * 2)

    def gpu_buffer(self, size: int) -> Any:
        return self._buffer(size, 0)

    def _buffer(self, size: int, number: int) -> Any:
        buffer = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{number}")
        torch.cuda.synchronize(number)  # a NIC does not wait for the kernel that zeroes
        return buffer

    def register_gpu(self, engine: Any, tensor: Any) -> Any:
        return engine.register_torch_tensor(tensor)
