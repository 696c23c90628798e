"""``mori.io`` of amd-mori 1.2.4, without the allocators for FABRIC memory."""

from collections.abc import Sequence

import torch
from mori.cpp import (
    BackendType as BackendType,
)
from mori.cpp import (
    EngineDesc as EngineDesc,
)
from mori.cpp import (
    FabricBackendConfig as FabricBackendConfig,
)
from mori.cpp import (
    IOEngineConfig as IOEngineConfig,
)
from mori.cpp import (
    MemoryDesc as MemoryDesc,
)
from mori.cpp import (
    MemoryLocationType as MemoryLocationType,
)
from mori.cpp import (
    PeerFailureEvent as PeerFailureEvent,
)
from mori.cpp import (
    PeerFailureReason as PeerFailureReason,
)
from mori.cpp import (
    PollCqMode as PollCqMode,
)
from mori.cpp import (
    RdmaBackendConfig as RdmaBackendConfig,
)
from mori.cpp import (
    StatusCode as StatusCode,
)
from mori.cpp import (
    TransferStatus,
)
from mori.cpp import (
    XgmiBackendConfig as XgmiBackendConfig,
)

Config = RdmaBackendConfig | XgmiBackendConfig | FabricBackendConfig | None
Lists = Sequence[Sequence[int]]

TORCH_DEVICE_TYPE_MAP: dict[str, MemoryLocationType]

class IOEngineSession:
    def __init__(self, mori_sess: object) -> None: ...
    def allocate_transfer_uid(self) -> int: ...
    def read(
        self, local_offset: int, remote_offset: int, size: int, transfer_uid: int, /
    ) -> TransferStatus: ...
    def write(
        self, local_offset: int, remote_offset: int, size: int, transfer_uid: int, /
    ) -> TransferStatus: ...
    def batch_read(
        self,
        local_offsets: Sequence[int],
        remote_offsets: Sequence[int],
        sizes: Sequence[int],
        transfer_uid: int,
        /,
    ) -> TransferStatus: ...
    def batch_write(
        self,
        local_offsets: Sequence[int],
        remote_offsets: Sequence[int],
        sizes: Sequence[int],
        transfer_uid: int,
        /,
    ) -> TransferStatus: ...
    def alive(self) -> bool: ...

class IOEngine:
    def __init__(self, key: str, config: IOEngineConfig) -> None: ...
    def get_engine_desc(self) -> EngineDesc: ...
    def create_backend(self, type: BackendType, config: Config = None) -> None: ...
    def remove_backend(self, type: BackendType) -> None: ...
    def register_remote_engine(self, engine_desc: EngineDesc) -> None: ...
    def deregister_remote_engine(self, engine_desc: EngineDesc) -> None: ...
    def register_memory(
        self, ptr: int, size: int, device_id: int, mem_loc: MemoryLocationType
    ) -> MemoryDesc: ...
    def register_torch_tensor(self, tensor: torch.Tensor) -> MemoryDesc: ...
    def deregister_memory(self, mem_desc: MemoryDesc) -> None: ...
    def allocate_transfer_uid(self) -> int: ...
    def read(
        self,
        local_dest_mem_desc: MemoryDesc,
        local_offset: int,
        remote_src_mem_desc: MemoryDesc,
        remote_offset: int,
        size: int,
        transfer_uid: int,
        /,
    ) -> TransferStatus: ...
    def write(
        self,
        local_dest_mem_desc: MemoryDesc,
        local_offset: int,
        remote_src_mem_desc: MemoryDesc,
        remote_offset: int,
        size: int,
        transfer_uid: int,
        /,
    ) -> TransferStatus: ...
    def batch_read(
        self,
        local_dest_mem_desc: Sequence[MemoryDesc],
        local_offsets: Lists,
        remote_src_mem_desc: Sequence[MemoryDesc],
        remote_offsets: Lists,
        sizes: Lists,
        transfer_uid: Sequence[int],
        /,
    ) -> list[TransferStatus]: ...
    def batch_write(
        self,
        local_dest_mem_desc: Sequence[MemoryDesc],
        local_offsets: Lists,
        remote_src_mem_desc: Sequence[MemoryDesc],
        remote_offsets: Lists,
        sizes: Lists,
        transfer_uid: Sequence[int],
        /,
    ) -> list[TransferStatus]: ...
    def create_session(
        self, local_mem: MemoryDesc, remote_mem: MemoryDesc
    ) -> IOEngineSession | None: ...
    def pop_inbound_transfer_status(
        self, remote_key: str, transfer_uid: int
    ) -> TransferStatus | None: ...
    def pop_peer_failure(self) -> PeerFailureEvent | None: ...
    def wait_all(self, statuses: Sequence[TransferStatus], timeout_ms: int = -1) -> StatusCode: ...

def set_log_level(level: str, /) -> None: ...
def fabric_alloc(size: int, device: int) -> int: ...
def fabric_free(ptr: int) -> None: ...
