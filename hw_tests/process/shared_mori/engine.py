"""``IOEngine`` and its sessions, with the signatures and the errors of the library."""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Sequence
from typing import Any

from hw_tests.process.shared_mori.control import ControlServer
from hw_tests.process.shared_mori.memory import Place, Segment, place_of
from hw_tests.process.shared_mori.queue_pair import Piece, QueuePair, RemoteMemory, Transfer
from hw_tests.process.shared_mori.status import TransferStatus, wait_all
from sim.fabric.mori.config import IOEngineConfig
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.enums import BackendType, MemoryLocationType, StatusCode
from sim.fabric.mori.failures import PeerFailureEvent, PeerFailures

_MOST_MEMORIES = 4096


class IOEngine:
    """Belongs to the process that creates it; peers reach it at ``config``'s address."""

    def __init__(self, key: str, config: IOEngineConfig) -> None:
        self._key = key
        self._host, self._port = config.host, config.port
        self._timeout_s = int(os.environ.get("MORI_IO_CP_TIMEOUT_MS", "5000")) / 1000
        self._uids = itertools.count()
        self._ids = itertools.count()
        self._places: dict[int, Place] = {}
        self._valid = Segment.create(_MOST_MEMORIES)
        self._server: ControlServer | None = None
        self._peers: dict[str, EngineDesc] = {}
        self._queue_pairs: dict[str, QueuePair] = {}
        self._failures = PeerFailures()

    def get_engine_desc(self) -> EngineDesc:
        """For peers."""
        node = platform.node()
        return EngineDesc.make(self._key, node, node, self._host, self._port, os.getpid())

    def create_backend(self, type: BackendType, config: Any = None) -> None:
        """Listen for peers.

        Raises:
            NotImplementedError: another backend than RDMA.
            OSError: the address is in use.
        """
        if type != BackendType.RDMA:
            raise NotImplementedError(f"{type.name} is not stood in for between processes")
        self._server = ControlServer(self._host, self._port, self._tell)
        self._port = self._server.port

    def remove_backend(self, type: BackendType) -> None:
        """End all queue pairs; transfers under way stay so for ever."""
        for queue_pair in self._queue_pairs.values():
            queue_pair.close()
        self._queue_pairs.clear()
        self._peers.clear()
        if self._server is not None:
            self._server.close()
            self._server = None

    def register_remote_engine(self, desc: EngineDesc) -> None:
        """Make a peer known; no network involved."""
        self._peers[desc.key] = desc

    def deregister_remote_engine(self, desc: EngineDesc) -> None:
        """Forget a peer; its queue pair stays."""
        self._peers.pop(desc.key, None)

    # ---------------------------------------------------------------- memory

    def register_torch_tensor(self, tensor: Any) -> MemoryDesc:
        """Let peers reach the bytes of a contiguous tensor.

        Raises:
            RuntimeError: it is not contiguous, or not in shared memory.
        """
        if not tensor.is_contiguous():
            raise RuntimeError("input tensor must be contiguous")
        size = tensor.nelement() * tensor.element_size()
        return self.register_memory(tensor.data_ptr(), size, -1, MemoryLocationType.CPU)

    def register_memory(
        self, ptr: int, size: int, device_id: int, mem_loc: MemoryLocationType
    ) -> MemoryDesc:
        """Likewise, by its address."""
        memory_id = next(self._ids)
        self._places[memory_id] = place_of(ptr, size)
        self._valid.mapping[memory_id] = 1
        return MemoryDesc.make(self._key, memory_id, device_id, ptr, size, mem_loc)

    def deregister_memory(self, desc: MemoryDesc) -> None:
        """Takes effect at once, whatever is in flight."""
        self._places.pop(desc.id, None)
        self._valid.mapping[desc.id] = 0

    def _tell(self, memory_id: int) -> tuple[Place, Place] | None:
        place = self._places.get(memory_id)
        if place is None:
            return None
        return place, Place(os.getpid(), self._valid.descriptor, memory_id, 1)

    # -------------------------------------------------------------- transfers

    def create_session(
        self, local_mem: MemoryDesc, remote_mem: MemoryDesc
    ) -> IOEngineSession | None:
        """None if there is no backend, or the peer is not known.

        Raises:
            RuntimeError: the peer cannot be reached, or has no such memory.
        """
        peer = self._peers.get(remote_mem.engine_key)
        if self._server is None or peer is None:
            return None
        queue_pair = self._queue_pairs.get(peer.key)
        if queue_pair is None:
            number = len(self._queue_pairs) + 1
            queue_pair = QueuePair(peer, self._timeout_s, self._failures, number)
            self._queue_pairs[peer.key] = queue_pair
        return IOEngineSession(self, queue_pair, local_mem, remote_mem, queue_pair.map(remote_mem))

    def allocate_transfer_uid(self) -> int:
        """0, 1, 2, ..."""
        return next(self._uids)

    def pop_peer_failure(self) -> PeerFailureEvent | None:
        """The oldest failure that was not popped yet."""
        return self._failures.pop()

    def wait_all(self, statuses: Sequence[TransferStatus], timeout_ms: int = -1) -> StatusCode:
        """Wait for all, one deadline."""
        return wait_all(statuses, timeout_ms)


class IOEngineSession:
    """Transfers between two memories; offsets are bytes from their starts."""

    def __init__(
        self,
        engine: IOEngine,
        queue_pair: QueuePair,
        local: MemoryDesc,
        remote: MemoryDesc,
        mapped: RemoteMemory,
    ) -> None:
        self._engine = engine
        self._queue_pair = queue_pair
        self._local = local
        self._remote = remote
        self._mapped = mapped

    def alive(self) -> bool:
        """False once the peer was found dead."""
        return self._queue_pair.is_alive

    def allocate_transfer_uid(self) -> int:
        """The engine's next transfer number."""
        return self._engine.allocate_transfer_uid()

    def read(self, local_off: int, remote_off: int, size: int, uid: int) -> TransferStatus:
        """Fill local memory from remote memory."""
        return self.batch_read([local_off], [remote_off], [size], uid)

    def write(self, local_off: int, remote_off: int, size: int, uid: int) -> TransferStatus:
        """Fill remote memory from local memory."""
        return self.batch_write([local_off], [remote_off], [size], uid)

    def batch_read(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        uid: int,
    ) -> TransferStatus:
        """Many reads as one transfer with one status."""
        return self._post(local_offs, remote_offs, sizes, is_read=True)

    def batch_write(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        uid: int,
    ) -> TransferStatus:
        """Many writes as one transfer with one status."""
        return self._post(local_offs, remote_offs, sizes, is_read=False)

    def _post(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        *,
        is_read: bool,
    ) -> TransferStatus:
        status = TransferStatus()
        if not len(local_offs) == len(remote_offs) == len(sizes):
            mismatch = "lengths of local offsets, remote offsets or sizes mismatch"
            status.Update(StatusCode.ERR_INVALID_ARGS, mismatch)
            return status
        pieces = []
        for here, there, size in zip(local_offs, remote_offs, sizes, strict=True):
            if here + size > self._local.size or there + size > self._remote.size:
                status.Update(StatusCode.ERR_INVALID_ARGS, "length out of range")
                return status
            ours, theirs = self._local.data + here, self._mapped.address + there
            pieces.append(Piece(ours, theirs, size) if is_read else Piece(theirs, ours, size))
        self._queue_pair.post(Transfer(self._mapped, pieces, status))
        return status
