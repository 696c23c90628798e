"""The real library as an arm of the conformance suite: memory of two GPUs, over RDMA and XGMI.

Unverified on hardware: it was only ever run with a stand-in for torch's GPU memory.
"""

from __future__ import annotations

from typing import Any

import torch

from hw_tests.arms.real import RealArm
from hw_tests.conformance.arm import Pair


class RocmArm(RealArm):
    """Engines of one process, with memory of the host or, the initiator's, of the first GPU and,
    the target's, of the second.

    Nothing is injected, because NIC and driver are real; a "crash" is the end of the target's
    backend.
    """

    def gpu_pair(
        self,
        size: int,
        *,
        backends: tuple[str, ...] = ("XGMI",),
        rdma: dict[str, int] | None = None,
        target: dict[str, int] | None = None,
    ) -> Pair:
        initiator = {"enable_notification": 0, **(rdma or {})}
        configs = [initiator, {**initiator, **(target or {})}]
        return self._pair(lambda number: self._gpu_buffer(size, number), backends, configs)

    def gpu_buffer(self, size: int) -> Any:
        return self._gpu_buffer(size, 0)

    def _gpu_buffer(self, size: int, number: int) -> Any:
        buffer = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{number}")
        torch.cuda.synchronize(number)  # a NIC does not wait for the kernel that zeroes
        return buffer

    def register_gpu(self, engine: Any, tensor: Any) -> Any:
        return engine.register_torch_tensor(tensor)
