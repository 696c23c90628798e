"""``IOEngine``: what callers create first, and the routing of transfers to its backend."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sim.errors import UnsupportedByFacade
from sim.fabric.mori import messages
from sim.fabric.mori.backend import RdmaBackend
from sim.fabric.mori.backends import Backends
from sim.fabric.mori.config import IOEngineConfig
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.enums import BackendType, MemoryLocationType, StatusCode
from sim.fabric.mori.failures import PeerFailureEvent
from sim.fabric.mori.plan import Items, to_column
from sim.fabric.mori.session import IOEngineSession
from sim.fabric.mori.settings import MoriSettings
from sim.fabric.mori.status import TransferStatus, wait_all
from sim.fabric.verdicts import PeerPair, RegistrationItem, SessionItem, refuse
from sim.fabric.work import Operation
from sim.kernel.task import call_site
from sim.verdict import Deliver, Drop, Fail

if TYPE_CHECKING:
    from sim.fabric.fabric import Fabric

Lists = Sequence[Sequence[int]]


class IOEngine:
    """Belongs to the process that creates it; bound to a run by attributes of a subclass."""

    _fabric: ClassVar[Fabric]
    _environ: ClassVar[Mapping[str, str]]
    _session: ClassVar[type[IOEngineSession]]
    _status: ClassVar[type[TransferStatus]]

    def __init__(self, key: str, config: IOEngineConfig) -> None:
        self._kernel = self._fabric.kernel
        self._process = self._kernel.require_task("creating an IOEngine").process
        self._settings = MoriSettings.from_environ(self._environ)
        self._key = key
        self._fabric.owners[key] = self._process.owner
        self._host = config.host
        self._port = config.port
        self._backends = Backends(self._fabric, self._process, key, self._node_id(), self._settings)
        self._next_memory_id = 0
        self._next_uid = 0
        self._own_memory: dict[int, int] = {}
        self._cached: dict[tuple[int, str, int], IOEngineSession] = {}

    def _node_id(self) -> str:
        name = self._process.node.name.encode()
        return self._settings.node_id or hashlib.blake2b(name, digest_size=16).hexdigest()

    # ----------------------------------------------------- engine and backend

    def get_engine_desc(self) -> EngineDesc:
        """For peers; the port is real only after the RDMA backend exists."""
        self._kernel.checkpoint()
        node, process = self._process.node, self._process
        identity = f"{process.path}#{process.incarnation}".encode()
        return EngineDesc.make(
            self._key,
            self._node_id(),
            node.name,
            self._host,
            self._port,
            1_000 + zlib.crc32(identity) % 30_000,
        )

    def create_backend(self, type: BackendType, config: Any = None) -> None:
        """Open the RDMA device and listen for peers, or prepare to copy between GPUs."""
        self._kernel.checkpoint()
        self._port = self._backends.create(type, config, self._host, self._port)

    def remove_backend(self, type: BackendType) -> None:
        """Close a backend; RDMA transfers under way stay so for ever."""
        self._kernel.checkpoint()
        if self._backends.remove(type):
            self._cached.clear()

    @property
    def _backend(self) -> RdmaBackend | None:
        return self._backends.rdma

    def register_remote_engine(self, engine_desc: EngineDesc) -> None:
        """Make a peer known to the backends there are; no network involved."""
        self._kernel.checkpoint()
        self._backends.register_remote_engine(engine_desc)

    def deregister_remote_engine(self, engine_desc: EngineDesc) -> None:
        """Forget a peer's descriptor; its queue pairs and memory keys stay."""
        self._kernel.checkpoint()
        self._backends.deregister_remote_engine(engine_desc)

    # ---------------------------------------------------------------- memory

    def register_memory(
        self, ptr: int, size: int, device_id: int, mem_loc: MemoryLocationType
    ) -> MemoryDesc:
        """Describe memory by its address; the caller keeps it alive."""
        return self._register(ptr, size, device_id, mem_loc, None)

    def register_torch_tensor(self, tensor: Any) -> MemoryDesc:
        """Describe the bytes of a contiguous tensor; in memory of a GPU of the process it counts as
        GPU memory, whatever torch thinks of it."""
        if not tensor.is_contiguous():
            raise RuntimeError("input tensor must be contiguous")
        address, size = tensor.data_ptr(), tensor.nelement() * tensor.element_size()
        memory = self._fabric.gpus.allocation_of(self._process, address, size)
        location = MemoryLocationType.CPU if memory is None else MemoryLocationType.GPU
        device = -1 if memory is None else memory.device
        return self._register(address, size, device, location, tensor.untyped_storage())

    def _register(
        self, address: int, size: int, device: int, location: MemoryLocationType, keep_alive: Any
    ) -> MemoryDesc:
        self._kernel.checkpoint()
        item = RegistrationItem(self._key, self._process.node.name, size)
        match self._fabric.verdicts.ask(item):
            case Deliver():
                pass
            case Fail(message=message):
                raise RuntimeError(message)
            case verdict:
                refuse(item, verdict)
        is_gpu = location == MemoryLocationType.GPU
        bus_id = self._fabric.gpus.bus_id(self._process, device) if is_gpu else ""
        desc = MemoryDesc.make(
            self._key, self._next_memory_id, device, address, size, location, bus_id
        )
        self._next_memory_id += 1
        self._own_memory[desc.id] = address
        for backend in self._backends:
            backend.register_memory(desc, keep_alive)
        return desc

    def deregister_memory(self, mem_desc: MemoryDesc) -> None:
        """Takes effect at once, whatever is in flight."""
        self._kernel.checkpoint()
        for backend in self._backends:
            backend.deregister_memory(mem_desc)
        stale = [key for key in self._cached if key[0] == mem_desc.id]
        for key in stale:
            del self._cached[key]

    # -------------------------------------------------------------- sessions

    def create_session(
        self, local_mem: MemoryDesc, remote_mem: MemoryDesc
    ) -> IOEngineSession | None:
        """None when nothing can carry the transfers; RuntimeError when connecting failed.

        Holds the GIL, also while it waits for a peer that does not answer.
        """
        self._kernel.checkpoint()
        with self._kernel.gil_held():
            return self._connect(local_mem, remote_mem)

    def _connect(self, local: MemoryDesc, remote: MemoryDesc) -> IOEngineSession | None:
        backend = self._backends.route(local, remote)
        if backend is None:
            return None
        if self._own_memory.get(local.id) != local.data:
            raise UnsupportedByFacade(f"{local.id} is no memory of {self._key}, at {call_site()}")
        node = self._process.node.name
        peer = backend.remote_engines.get(remote.engine_key)
        pair = PeerPair(self._key, node, remote.engine_key, peer.hostname if peer else node)
        match self._fabric.verdicts.ask(SessionItem(pair)):
            case Deliver():
                poster = backend.connect(local, remote)
                return self._session(self, poster) if poster is not None else None
            case Drop():
                return None
            case Fail(message=message):
                raise RuntimeError(message)
            case verdict:
                refuse(SessionItem(pair), verdict)

    # ------------------------------------------------- transfers, no session

    def allocate_transfer_uid(self) -> int:
        """0, 1, 2, ... up to 32 bits."""
        self._kernel.checkpoint()
        uid = self._next_uid
        self._next_uid = (uid + 1) % 2**32
        return uid

    def read(
        self, local: MemoryDesc, local_off: int, remote: MemoryDesc, remote_off: int,
        size: int, uid: int, /,
    ) -> TransferStatus:  # fmt: skip
        """Fill local memory from remote memory."""
        return self._single(Operation.READ, local, local_off, remote, remote_off, size, uid)

    def write(
        self, local: MemoryDesc, local_off: int, remote: MemoryDesc, remote_off: int,
        size: int, uid: int, /,
    ) -> TransferStatus:  # fmt: skip
        """Fill remote memory from local memory."""
        return self._single(Operation.WRITE, local, local_off, remote, remote_off, size, uid)

    def batch_read(
        self, locals: Sequence[MemoryDesc], local_offs: Lists, remotes: Sequence[MemoryDesc],
        remote_offs: Lists, sizes: Lists, uids: Sequence[int], /,
    ) -> list[TransferStatus]:  # fmt: skip
        """Several batches, a status for each."""
        return self._batch(Operation.READ, locals, local_offs, remotes, remote_offs, sizes, uids)

    def batch_write(
        self, locals: Sequence[MemoryDesc], local_offs: Lists, remotes: Sequence[MemoryDesc],
        remote_offs: Lists, sizes: Lists, uids: Sequence[int], /,
    ) -> list[TransferStatus]:  # fmt: skip
        """Several batches, a status for each."""
        return self._batch(Operation.WRITE, locals, local_offs, remotes, remote_offs, sizes, uids)

    def _single(
        self, operation: Operation, local: MemoryDesc, local_off: int, remote: MemoryDesc,
        remote_off: int, size: int, uid: int,
    ) -> TransferStatus:  # fmt: skip
        self._kernel.checkpoint()
        items = Items(to_column([local_off]), to_column([remote_off]), to_column([size]))
        status = self._status()
        self._post(operation, local, remote, items, uid, status, single=True)
        return status

    def _batch(
        self, operation: Operation, locals: Sequence[MemoryDesc], local_offs: Lists,
        remotes: Sequence[MemoryDesc], remote_offs: Lists, sizes: Lists, uids: Sequence[int],
    ) -> list[TransferStatus]:  # fmt: skip
        self._kernel.checkpoint()
        columns = zip(locals, local_offs, remotes, remote_offs, sizes, uids, strict=True)
        calls = [
            (local, remote, Items(to_column(here), to_column(there), to_column(size)), uid)
            for local, here, remote, there, size, uid in columns
        ]
        with self._kernel.gil_held():
            items = sum(len(items.sizes) for _local, _remote, items, _uid in calls)
            self._kernel.sleep(items * self._fabric.profile.item_ns)
        statuses = [self._status() for _call in calls]
        for (local, remote, converted, uid), status in zip(calls, statuses, strict=True):
            self._post(operation, local, remote, converted, uid, status, single=False)
            if status.Failed():
                break
        return statuses

    def _post(
        self, operation: Operation, local: MemoryDesc, remote: MemoryDesc, items: Items,
        uid: int, status: TransferStatus, *, single: bool,
    ) -> None:  # fmt: skip
        backend = self._backends.route(local, remote)
        if backend is None:
            status.Update(StatusCode.ERR_BAD_STATE, messages.NO_BACKEND)
            return
        session = self._cached_session(local, remote)
        if session is None:
            status.Update(StatusCode.ERR_BAD_STATE, backend.failed_session)
            return
        session.post(operation, items, uid, status, single=single)

    def _cached_session(self, local: MemoryDesc, remote: MemoryDesc) -> IOEngineSession | None:
        key = (local.id, remote.engine_key, remote.id)
        if key not in self._cached:
            with self._kernel.gil_held():
                session = self._connect(local, remote)
            if session is None:
                return None
            self._cached[key] = session
        return self._cached[key]

    # -------------------------------------------------------------- outcomes

    def pop_inbound_transfer_status(
        self, remote_key: str, transfer_uid: int
    ) -> TransferStatus | None:
        """SUCCESS once all notifications of a peer's transfer have arrived, however often."""
        self._kernel.checkpoint()
        backend = self._backend
        if backend is None or not backend.inbound.is_complete(remote_key, transfer_uid):
            return None
        status = self._status()
        status.SetCode(StatusCode.SUCCESS)
        return status

    def pop_peer_failure(self) -> PeerFailureEvent | None:
        """The oldest failure that was not popped yet."""
        self._kernel.checkpoint()
        return self._backend.failures.pop() if self._backend is not None else None

    def wait_all(self, statuses: Sequence[TransferStatus], timeout_ms: int = -1) -> StatusCode:
        """Wait for all, one deadline; see ``sim.fabric.mori.status.wait_all``."""
        self._kernel.checkpoint()
        return wait_all(self._kernel, statuses, timeout_ms)
