"""The XGMI backend: transfers between GPUs of one machine as copies on streams.

There is no completion thread and no control plane: descriptors carry a handle by which another
process maps the memory. Nothing is checked against what was registered; a copy may reach
whatever else is in the same allocation. Past its end the library's behaviour is undefined, and
the run ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.fabric.copy_stream import CopyStream, MappedMemory
from sim.fabric.gpu import GpuAllocation
from sim.fabric.memory import MemoryRegion
from sim.fabric.mori.config import XgmiBackendConfig
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.enums import MemoryLocationType
from sim.fabric.mori.settings import MoriSettings
from sim.fabric.mori.xgmi_poster import XgmiPoster
from sim.fabric.verdicts import PeerPair
from sim.kernel import Process

if TYPE_CHECKING:
    from sim.fabric.fabric import Fabric

_STREAMS = 64  # where the configuration names none


class XgmiBackend:
    """Opened with ``create_backend``, closed with ``remove_backend``."""

    failed_session = "XGMI: Failed to create session"

    def __init__(
        self,
        fabric: Fabric,
        process: Process,
        key: str,
        node_id: str,
        config: XgmiBackendConfig,
        settings: MoriSettings,
    ) -> None:
        self.fabric = fabric
        self.process = process
        self.key = key
        self.settings = settings
        self.open = True
        self.remote_engines: dict[str, EngineDesc] = {}
        self._node_id = node_id
        self._num_streams = config.num_streams if config.num_streams > 0 else _STREAMS
        self._streams: dict[int, list[CopyStream]] = {}
        self._next_stream: dict[int, int] = {}
        self._own: dict[int, GpuAllocation] = {}
        self._mapped: dict[tuple[str, int, int], MappedMemory] = {}

    def close(self) -> None:
        """Sessions are no use any more; what is on a stream goes on."""
        self.open = False

    # ---------------------------------------------------------------- memory

    def register_memory(self, desc: MemoryDesc, keep_alive: object) -> None:
        """Export GPU memory; other memory is none of this backend's business."""
        if desc.loc != MemoryLocationType.GPU:
            return
        allocation = self.fabric.gpus.export(
            self.process, desc.device_id, desc.data, desc.size, keep_alive
        )
        self._own[desc.id] = allocation
        desc.exported(allocation.handle, desc.data - allocation.base)

    def deregister_memory(self, desc: MemoryDesc) -> None:
        """Sessions there are go on, and so do mappings that peers have."""
        self._own.pop(desc.id, None)

    # -------------------------------------------------------------- sessions

    def can_handle(self, local: MemoryDesc, remote: MemoryDesc) -> bool:
        """Whether both are memory of GPUs of this machine that reach each other."""
        gpu = MemoryLocationType.GPU
        if local.loc != gpu or remote.loc != gpu or not self.fabric.gpus.profile.peer_access:
            return False
        if remote.engine_key == self.key:
            return True
        engine = self.remote_engines.get(remote.engine_key)
        return engine is not None and engine.node_id == self._node_id and remote.is_exported

    def connect(self, local: MemoryDesc, remote: MemoryDesc) -> XgmiPoster | None:
        """Map the peer's memory; None when that fails."""
        here, there = self._map(local, local.device_id), self._map(remote, local.device_id)
        if here is None or there is None:
            return None
        node = there.allocation.process.node.name
        pair = PeerPair(self.key, self.process.node.name, remote.engine_key, node)
        return XgmiPoster(self, pair, here, there)

    def _map(self, desc: MemoryDesc, device: int) -> MappedMemory | None:
        """Mappings are kept by engine key and memory id, whoever has these by now."""
        known = (desc.engine_key, desc.id, device)
        if known not in self._mapped:
            if desc.engine_key == self.key:
                allocation = self._own.get(desc.id)
                if allocation is None:  # registered before there was this backend
                    allocation = self.fabric.gpus.export(
                        self.process, desc.device_id, desc.data, desc.size, None
                    )
            else:
                allocation = self.fabric.gpus.open(self.process, desc.ipc_handle)
            if allocation is None:
                return None
            self._mapped[known] = _mapped(desc, allocation)
        return self._mapped[known]

    def next_stream(self, device: int) -> CopyStream:
        """The streams of a GPU in turn."""
        if device not in self._streams:
            self._streams[device] = [
                CopyStream(self.fabric, self.process) for _ in range(self._num_streams)
            ]
        number = self._next_stream.get(device, 0)
        self._next_stream[device] = (number + 1) % self._num_streams
        return self._streams[device][number]


def _mapped(desc: MemoryDesc, allocation: GpuAllocation) -> MappedMemory:
    address = allocation.base + desc.ipc_offset if desc.is_exported else desc.data
    region = MemoryRegion(
        address,
        allocation.base + allocation.size - address,
        key=0,
        owner=desc.engine_key,
        node=allocation.process.node.name,
        keep_alive=allocation.keep_alive,
    )
    return MappedMemory(allocation, region)
