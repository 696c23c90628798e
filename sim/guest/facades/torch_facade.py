"""``torch`` with a simulated device and simulated process groups; tensors are the real ones.

``torch.cuda`` shows one device with the stream of the rank that runs the process, and those that
the process makes for itself.
``torch.distributed`` serves the collectives that connectors call on their rank group.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import torch

from sim.device import DeviceEvent, SideStream, Stream, chosen, chosen_stream
from sim.guest.facades.proxy import Facade, ModuleProxy
from sim.kernel import Kernel


def make(kernel: Kernel) -> dict[str, ModuleType]:
    """Facades by module name: torch, torch.cuda, torch.distributed."""
    cuda = _make_cuda(kernel)
    distributed = _make_distributed(kernel)
    top = ModuleProxy(torch, {"cuda": cuda, "distributed": distributed}, "torch")
    return {"torch": top, "torch.cuda": cuda, "torch.distributed": distributed}


def _make_cuda(kernel: Kernel) -> ModuleType:
    def default_stream(device: Any = None) -> Stream:
        kernel.checkpoint()
        stream: Stream = kernel.require_task("torch.cuda").process.resources["stream"]
        return stream

    def current_stream(device: Any = None) -> Stream:
        return chosen_stream(default_stream())

    def use(stream: Stream | None) -> AbstractContextManager[None]:
        return nullcontext() if stream is None else chosen(kernel, stream)

    def device() -> tuple[int, int]:
        """The process's device, and how many it sees: those of its tensor-parallel group."""
        place: tuple[int, int] = kernel.require_task("torch.cuda").process.resources["device"]
        return place

    class Event(DeviceEvent):
        """A device event that guests construct with torch's arguments."""

        def __init__(
            self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> None:
            super().__init__()

        def record(self, stream: Stream | None = None) -> None:
            super().record(stream if stream is not None else current_stream())

    class OwnStream(SideStream):
        """A stream that guests construct with torch's arguments."""

        def __init__(self, device: Any = None, priority: int = 0) -> None:
            process = kernel.require_task("torch.cuda").process
            super().__init__(kernel, process, f"{process.path}/side stream")

    def synchronize(device: Any = None) -> None:
        current_stream().synchronize()

    return Facade(
        kernel,
        "torch.cuda",
        {
            "Event": Event,
            "Stream": OwnStream,
            "current_stream": current_stream,
            "default_stream": default_stream,
            "synchronize": synchronize,
            "stream": use,
            "device": lambda _device: nullcontext(),
            "set_device": lambda _device: None,
            "current_device": lambda: device()[0],
            "device_count": lambda: device()[1],
            "is_available": lambda: True,
        },
    )


def _make_distributed(kernel: Kernel) -> ModuleType:
    real = torch.distributed

    def group_of(group: Any) -> Any:
        return (
            kernel.require_task("a collective").process.resources["tp group"]
            if (group is None)
            else group
        )

    def all_reduce(tensor: Any, op: Any = real.ReduceOp.SUM, group: Any = None) -> None:
        kernel.checkpoint()
        everyone = torch.stack(group_of(group).exchange(tensor.clone()))
        tensor.copy_(_REDUCTIONS[str(op)](everyone))

    def all_gather_object(objects: list[Any], obj: Any, group: Any = None) -> None:
        kernel.checkpoint()
        objects[:] = group_of(group).exchange(obj)

    def broadcast_object_list(objects: list[Any], src: int = 0, group: Any = None) -> None:
        kernel.checkpoint()
        objects[:] = group_of(group).exchange(list(objects))[src]

    def barrier(group: Any = None) -> None:
        kernel.checkpoint()
        group_of(group).exchange(None)

    return Facade(
        kernel,
        "torch.distributed",
        {
            "ReduceOp": real.ReduceOp,
            "ProcessGroup": real.ProcessGroup,
            "all_reduce": all_reduce,
            "all_gather_object": all_gather_object,
            "broadcast_object_list": broadcast_object_list,
            "barrier": barrier,
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "get_rank": lambda group=None: group_of(group).rank_in_group,
            "get_world_size": lambda group=None: group_of(group).world_size,
        },
    )


_REDUCTIONS = {
    str(torch.distributed.ReduceOp.SUM): lambda stacked: stacked.sum(dim=0),
    str(torch.distributed.ReduceOp.MIN): lambda stacked: stacked.amin(dim=0),
    str(torch.distributed.ReduceOp.MAX): lambda stacked: stacked.amax(dim=0),
}
