"""Two machines with one device and one memory each, connected by one or more queue pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sim.fabric import Fabric, Landing, Operation
from sim.fabric.device import Device
from sim.fabric.memory import MemoryRegion
from sim.fabric.named import CX7
from sim.fabric.profile import FabricProfile
from sim.fabric.queue_pair import QueuePair
from sim.fabric.work import Completion, RemoteRegion, Segments, WorkRequestChain
from sim.kernel import Kernel, Node, Process
from sim.verdict import Verdict


class Answer:
    """A rule: ``verdict`` for the next ``times`` items of one kind."""

    def __init__(self, kind: type, verdict: Verdict, times: int = 1) -> None:
        self.kind, self.verdict, self.times = kind, verdict, times

    def judge(self, item: Any) -> Verdict | None:
        if not isinstance(item, self.kind) or not self.times:
            return None
        self.times -= 1
        return self.verdict


class Landings:
    """Remembers each landing with the time, and what was in the first byte before and after."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.seen: list[tuple[int, Landing]] = []
        self.first_bytes: list[tuple[int, int]] = []
        self._before = 0

    def before_landing(self, landing: Landing) -> None:
        self._before = self._first(landing)

    def after_landing(self, landing: Landing) -> None:
        self.first_bytes.append((self._before, self._first(landing)))
        self.seen.append((self.kernel.now_ns, landing))

    @staticmethod
    def _first(landing: Landing) -> int:
        return int(landing.destination.view[landing.destination_offsets[0]])


class FabricWorld:
    """``p`` and ``d``: queue pairs of ``d`` reach ``p``; completions of ``d`` are kept."""

    def __init__(self, kernel: Kernel, profile: FabricProfile = CX7, size: int = 1 << 20) -> None:
        self.kernel = kernel
        self.fabric = Fabric(kernel, profile)
        self.completions: list[tuple[int, Completion]] = []
        self.landings = Landings(kernel)
        self.fabric.on_landing(self.landings)
        self.devices: dict[str, Device] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.regions: dict[str, MemoryRegion] = {}
        for name in ("p", "d"):
            self.add_machine(name, size)

    def add_machine(self, name: str, size: int = 1 << 20) -> Device:
        process = Process(Node(name, f"10.0.0.{len(self.devices) + 1}"), "worker")
        device = self.fabric.open_device(process, name, self._completed)
        tensor = torch.zeros(size, dtype=torch.uint8)
        self.tensors[name] = tensor
        self.regions[name] = device.register(tensor.data_ptr(), size, tensor.untyped_storage())
        self.devices[name] = device
        return device

    def _completed(self, completion: Completion) -> None:
        self.completions.append((self.kernel.now_ns, completion))

    def connect(self, initiator: str = "d", target: str = "p") -> QueuePair:
        one = self.devices[initiator].create_queue_pair(8192)
        other = self.devices[target].create_queue_pair(8192)
        one.connect(other)
        other.connect(one)
        return one

    def chain(
        self, queue_pair: QueuePair, sizes: list[int], *, read: bool = True, at: int = 0,
        signaled: bool = True,
    ) -> WorkRequestChain:  # fmt: skip
        """Work requests of ``sizes``, one after the other in both memories, from ``at``."""
        assert queue_pair.peer is not None
        remote = self.regions[queue_pair.peer.device.key]
        columns = np.array(sizes)
        offsets = at + np.cumsum(columns) - columns
        return WorkRequestChain(
            Operation.READ if read else Operation.WRITE,
            Segments(offsets, offsets, columns, np.arange(len(sizes))),
            self.regions[queue_pair.device.key],
            RemoteRegion(remote.key, remote.size),
            transfer_uid=0,
            context=None,
            signaled=signaled,
        )

    def post(self, queue_pair: QueuePair, sizes: list[int], **kind: Any) -> WorkRequestChain:
        chain = self.chain(queue_pair, sizes, **kind)
        queue_pair.post(chain)
        return chain

    def statuses(self) -> list[str]:
        return [completion.status.name for _time, completion in self.completions]
