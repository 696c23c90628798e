"""``mori.io`` as callers see it: types that mypy holds the simulated and the released library to.

The released library is its stubs in ``stubs/mori``. Both libraries have classes of their own, so
each protocol is generic in the other classes that it takes and returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

Key_contra = TypeVar("Key_contra", contravariant=True)  # BackendType
Options_contra = TypeVar("Options_contra", contravariant=True)  # of a backend
Host_contra = TypeVar("Host_contra", contravariant=True)  # IOEngineConfig
Peer = TypeVar("Peer")  # EngineDesc
Memory = TypeVar("Memory")  # MemoryDesc
Place_contra = TypeVar("Place_contra", contravariant=True)  # MemoryLocationType, taken
Where_co = TypeVar("Where_co", covariant=True)  # MemoryLocationType, told
State = TypeVar("State")  # StatusCode
Told_co = TypeVar("Told_co", covariant=True)  # StatusCode, told
Status = TypeVar("Status")  # TransferStatus
Made_co = TypeVar("Made_co", covariant=True)
Failure_co = TypeVar("Failure_co", covariant=True)  # PeerFailureEvent
Reason_co = TypeVar("Reason_co", covariant=True)  # PeerFailureReason
Mode = TypeVar("Mode")  # PollCqMode
Polled_contra = TypeVar("Polled_contra", contravariant=True)  # PollCqMode, taken
Lists = Sequence[Sequence[int]]


class Enumeration(Protocol):
    """A member of one."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...


class EngineConfig(Protocol):
    """Where an engine listens."""

    host: str
    port: int


class MakesEngineConfig(Protocol):
    """Its constructor."""

    def __call__(self, host: str = "", port: int = 0) -> EngineConfig: ...


class CopyConfig(Protocol):
    """Of XGMI and of FABRIC."""

    num_streams: int
    num_events: int


class MakesCopyConfig(Protocol):
    """Their constructor."""

    def __call__(self, num_streams: int = 64, num_events: int = 64) -> CopyConfig: ...


class RdmaConfig(Protocol[Mode]):
    """Of the RDMA backend."""

    qp_per_transfer: int
    post_batch_size: int
    num_worker_threads: int
    poll_cq_mode: Mode
    enable_notification: bool
    notif_per_qp: int
    enable_transfer_chunking: bool
    chunk_bytes: int
    max_chunks_per_transfer: int
    num_nics_per_transfer: int
    max_send_wr: int
    max_cqe_num: int
    max_msg_sge: int


class MakesRdmaConfig(Protocol[Polled_contra, Made_co]):
    """Its constructor."""

    def __call__(
        self,
        qp_per_transfer: int = 1,
        post_batch_size: int = -1,
        num_worker_threads: int = -1,
        poll_cq_mode: Polled_contra = ...,
        enable_notification: bool = True,
        notif_per_qp: int = 1024,
        enable_transfer_chunking: bool = False,
        chunk_bytes: int = 65536,
        max_chunks_per_transfer: int = 64,
        num_nics_per_transfer: int = 1,
    ) -> Made_co: ...


class EngineDesc(Protocol):
    """Who an engine is."""

    @property
    def key(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def hostname(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def pid(self) -> int: ...
    def pack(self) -> bytes: ...
    @staticmethod
    def unpack(packed: bytes, /) -> EngineDesc: ...


class MemoryDesc(Protocol[Where_co]):
    """A registration."""

    @property
    def engine_key(self) -> str: ...
    @property
    def id(self) -> int: ...
    @property
    def device_id(self) -> int: ...
    @property
    def device_bus_id(self) -> str: ...
    @property
    def numa_node(self) -> int: ...
    @property
    def data(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def loc(self) -> Where_co: ...
    @property
    def ipc_handle(self) -> bytes: ...
    def pack(self) -> bytes: ...
    @staticmethod
    def unpack(packed: bytes, /) -> MemoryDesc[Where_co]: ...


class PeerFailureEvent(Protocol[Reason_co]):
    """Why a session died."""

    @property
    def remote_engine_key(self) -> str: ...
    @property
    def reason(self) -> Reason_co: ...
    @property
    def qp_num(self) -> int: ...
    @property
    def port_num(self) -> int: ...
    @property
    def device_name(self) -> str: ...
    @property
    def detail(self) -> str: ...


class TransferStatus(Protocol[State]):
    """Of one transfer."""

    def Code(self) -> State: ...
    def Message(self) -> str: ...
    def Update(self, code: State, message: str, /) -> None: ...
    def SetCode(self, code: State, /) -> None: ...
    def SetMessage(self, message: str, /) -> None: ...
    def Init(self) -> bool: ...
    def InProgress(self) -> bool: ...
    def Succeeded(self) -> bool: ...
    def Failed(self) -> bool: ...
    def Wait(self) -> None: ...
    def WaitFor(self, timeout_ms: int = -1) -> State: ...


class Session(Protocol[Made_co]):
    """``IOEngineSession``, which ``create_session`` makes."""

    def allocate_transfer_uid(self) -> int: ...
    def read(self, local_offset: int, remote_offset: int, size: int, uid: int, /) -> Made_co: ...
    def write(self, local_offset: int, remote_offset: int, size: int, uid: int, /) -> Made_co: ...
    def batch_read(
        self, local: Sequence[int], remote: Sequence[int], sizes: Sequence[int], uid: int, /
    ) -> Made_co: ...
    def batch_write(
        self, local: Sequence[int], remote: Sequence[int], sizes: Sequence[int], uid: int, /
    ) -> Made_co: ...
    def alive(self) -> bool: ...


class Engine(
    Protocol[
        Key_contra, Options_contra, Peer, Memory, Place_contra, Told_co, Status, Made_co, Failure_co
    ]
):
    """``IOEngine``."""

    def get_engine_desc(self) -> Peer: ...
    def create_backend(self, type: Key_contra, config: Options_contra | None = None) -> None: ...
    def remove_backend(self, type: Key_contra) -> None: ...
    def register_remote_engine(self, engine_desc: Peer) -> None: ...
    def deregister_remote_engine(self, engine_desc: Peer) -> None: ...
    def register_memory(
        self, ptr: int, size: int, device_id: int, mem_loc: Place_contra
    ) -> Memory: ...
    def register_torch_tensor(self, tensor: Any) -> Memory: ...
    def deregister_memory(self, mem_desc: Memory) -> None: ...
    def allocate_transfer_uid(self) -> int: ...
    def read(
        self, local: Memory, local_offset: int, remote: Memory, remote_offset: int,
        size: int, uid: int, /,
    ) -> Status: ...  # fmt: skip
    def write(
        self, local: Memory, local_offset: int, remote: Memory, remote_offset: int,
        size: int, uid: int, /,
    ) -> Status: ...  # fmt: skip
    def batch_read(
        self, local: Sequence[Memory], local_offsets: Lists, remote: Sequence[Memory],
        remote_offsets: Lists, sizes: Lists, uids: Sequence[int], /,
    ) -> list[Status]: ...  # fmt: skip
    def batch_write(
        self, local: Sequence[Memory], local_offsets: Lists, remote: Sequence[Memory],
        remote_offsets: Lists, sizes: Lists, uids: Sequence[int], /,
    ) -> list[Status]: ...  # fmt: skip
    def create_session(self, local_mem: Memory, remote_mem: Memory) -> Made_co | None: ...
    def pop_inbound_transfer_status(self, remote_key: str, transfer_uid: int) -> Status | None: ...
    def pop_peer_failure(self) -> Failure_co | None: ...
    def wait_all(self, statuses: Sequence[Status], timeout_ms: int = -1) -> Told_co: ...


class MakesEngine(Protocol[Host_contra, Made_co]):
    """Its constructor."""

    def __call__(self, key: str, config: Host_contra) -> Made_co: ...


if TYPE_CHECKING:
    from mori import cpp as real
    from mori.io import IOEngine, IOEngineSession

    from sim.fabric.mori import config as sim_config
    from sim.fabric.mori import descriptors as sim_desc
    from sim.fabric.mori import engine as sim_engine
    from sim.fabric.mori import enums as sim_enums
    from sim.fabric.mori import failures as sim_failures
    from sim.fabric.mori import session as sim_session
    from sim.fabric.mori import status as sim_status

    _enumerations: tuple[type[Enumeration], ...] = (
        *(real.BackendType, real.MemoryLocationType, real.StatusCode),
        *(real.PollCqMode, real.PeerFailureReason),
        *(sim_enums.BackendType, sim_enums.MemoryLocationType, sim_enums.StatusCode),
        *(sim_enums.PollCqMode, sim_enums.PeerFailureReason),
    )
    _engine_configs: tuple[MakesEngineConfig, ...] = (
        real.IOEngineConfig,
        sim_config.IOEngineConfig,
    )
    _copy_configs: tuple[MakesCopyConfig, ...] = (
        *(real.XgmiBackendConfig, real.FabricBackendConfig),
        *(sim_config.XgmiBackendConfig, sim_config.FabricBackendConfig),
    )
    _peers: tuple[type[EngineDesc], ...] = (real.EngineDesc, sim_desc.EngineDesc)

    _real_rdma: MakesRdmaConfig[real.PollCqMode, RdmaConfig[real.PollCqMode]]
    _real_rdma = real.RdmaBackendConfig
    _real_memory: type[MemoryDesc[real.MemoryLocationType]] = real.MemoryDesc
    _real_failure: type[PeerFailureEvent[real.PeerFailureReason]] = real.PeerFailureEvent
    _real_status: type[TransferStatus[real.StatusCode]] = real.TransferStatus
    _real_session: type[Session[real.TransferStatus]] = IOEngineSession
    _real_engine: MakesEngine[
        real.IOEngineConfig,
        Engine[
            real.BackendType,
            real.RdmaBackendConfig | real.XgmiBackendConfig | real.FabricBackendConfig,
            real.EngineDesc,
            real.MemoryDesc,
            real.MemoryLocationType,
            real.StatusCode,
            real.TransferStatus,
            IOEngineSession,
            real.PeerFailureEvent,
        ],
    ] = IOEngine

    _sim_rdma: MakesRdmaConfig[sim_enums.PollCqMode, RdmaConfig[sim_enums.PollCqMode]]
    _sim_rdma = sim_config.RdmaBackendConfig
    _sim_memory: type[MemoryDesc[sim_enums.MemoryLocationType]] = sim_desc.MemoryDesc
    _sim_failure: type[PeerFailureEvent[sim_enums.PeerFailureReason]]
    _sim_failure = sim_failures.PeerFailureEvent
    _sim_status: type[TransferStatus[sim_enums.StatusCode]] = sim_status.TransferStatus
    _sim_session: type[Session[sim_status.TransferStatus]] = sim_session.IOEngineSession
    _sim_engine: MakesEngine[
        sim_config.IOEngineConfig,
        Engine[
            sim_enums.BackendType,
            sim_config.RdmaBackendConfig
            | sim_config.XgmiBackendConfig
            | sim_config.FabricBackendConfig,
            sim_desc.EngineDesc,
            sim_desc.MemoryDesc,
            sim_enums.MemoryLocationType,
            sim_enums.StatusCode,
            sim_status.TransferStatus,
            sim_session.IOEngineSession,
            sim_failures.PeerFailureEvent,
        ],
    ] = sim_engine.IOEngine

    def _keywords(
        engine: IOEngine | sim_engine.IOEngine,
        status: real.TransferStatus | sim_status.TransferStatus,
        given: Any,
    ) -> None:
        """Names of parameters, which mypy does not compare with those of a protocol's methods."""
        engine.create_backend(type=given, config=given)
        engine.remove_backend(type=given)
        engine.register_remote_engine(engine_desc=given)
        engine.deregister_remote_engine(engine_desc=given)
        engine.register_memory(ptr=given, size=given, device_id=given, mem_loc=given)
        engine.register_torch_tensor(tensor=given)
        engine.deregister_memory(mem_desc=given)
        engine.create_session(local_mem=given, remote_mem=given)
        engine.pop_inbound_transfer_status(remote_key=given, transfer_uid=given)
        engine.wait_all(statuses=given, timeout_ms=given)
        status.WaitFor(timeout_ms=given)
