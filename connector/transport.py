"""mori.io: one engine, its registered memory, sessions with peers, and reads.

This is the only module that knows the library, and it knows nothing of vLLM. A read is posted as
one batch for each session; the library merges what lies together.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import torch
from mori.io import (
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    MemoryDesc,
    PollCqMode,
    RdmaBackendConfig,
    XgmiBackendConfig,
)

from connector.core.config import Settings
from connector.core.errors import ConnectorError

_POST_BATCH = "MORI_IO_POST_BATCH_SIZE"
_QUEUE_PAIRS = "MORI_IO_QP_PER_TRANSFER"
_XGMI_ONLY_PORT = 1
"""Of an engine without an RDMA device, which copies over XGMI instead."""


class TransportError(ConnectorError):
    """The library refused a session or a registration."""


class ReadState(Enum):
    """The state of some reads, taken together."""

    IN_FLIGHT = auto()
    DONE = auto()
    FAILED = auto()
    """All are final, and at least one failed."""


class Transport:
    """One rank's mori.io engine.

    Args:
        host_ip: that peers connect to.
        port: likewise; 0 for any that is free. The library ends the process if it is taken.
        name: of the rank, for the library's messages; made unique for each start, because the
            library cannot reach a peer that comes back under a name it has known.
        settings: of this engine.
    """

    def __init__(self, host_ip: str, port: int, name: str, settings: Settings) -> None:
        self._engine = IOEngine(f"{name}:{uuid.uuid4().hex}", IOEngineConfig(host_ip, port))
        self.has_read = False
        """Whether anything was read through it."""
        self.refuses_whole = (
            _in_force(_POST_BATCH, settings.post_batch_size) == -1
            and _in_force(_QUEUE_PAIRS, settings.qp_per_transfer) == 1
        )
        """Whether nothing of a batch is under way that found no room in the send queue."""
        self._backend = BackendType.XGMI if settings.backend == "xgmi" else BackendType.RDMA
        if self._backend == BackendType.XGMI:
            self._engine.create_backend(BackendType.XGMI, XgmiBackendConfig())
        else:
            config = RdmaBackendConfig(
                settings.qp_per_transfer,
                settings.post_batch_size,
                settings.num_workers,
                PollCqMode.POLLING,
                enable_notification=False,  # a notification that fails poisons its transfer
            )
            self._engine.create_backend(BackendType.RDMA, config)

    @property
    def descriptor(self) -> bytes:
        return bytes(self._engine.get_engine_desc().pack())

    def register(self, memory: torch.Tensor) -> Any:
        """Raises TransportError."""
        try:
            return self._engine.register_torch_tensor(memory)
        except RuntimeError as error:
            raise TransportError(f"{memory.numel()} bytes cannot be registered: {error}") from error

    def add_peer(self, descriptor: bytes) -> str:
        """Make a peer's engine known; returns its key.

        Raises:
            TransportError: the descriptor cannot be read.
        """
        try:
            peer = EngineDesc.unpack(descriptor)
        except RuntimeError as error:
            raise TransportError(f"an engine descriptor cannot be read: {error}") from error
        self._engine.register_remote_engine(peer)
        return str(peer.key)

    def open_session(self, ours: Any, theirs: Any) -> Any:
        """Open a session between two memories. Holds the interpreter's lock while it connects.

        Raises:
            TransportError: the peer cannot be reached, or its memory is another.
        """
        try:
            session = self._engine.create_session(ours, theirs)
        except RuntimeError as error:
            raise TransportError(f"no session with {theirs.engine_key}: {error}") from error
        if session is None:
            raise TransportError(f"no backend of mori.io reaches {theirs.engine_key}")
        return session

    def read(
        self, session: Any, ours: Sequence[int], theirs: Sequence[int], sizes: Sequence[int]
    ) -> Any:
        """Post reads; returns the status that stands for all of them."""
        self.has_read = True
        uid = self._engine.allocate_transfer_uid()
        return session.batch_read(list(ours), list(theirs), list(sizes), uid)

    def close(self) -> bool:
        """Destroy the queue pairs; whether no read can land any more.

        Copies over XGMI are on a stream of the GPU and go on. Sessions must not be used again.
        """
        uses_queue_pairs = bool(
            self._backend == BackendType.RDMA
            and self._engine.get_engine_desc().port != _XGMI_ONLY_PORT
        )
        self._engine.remove_backend(self._backend)
        return uses_queue_pairs


def _in_force(key: str, setting: int) -> int:
    """The environment overrides our settings, and 0 stands for what is no number."""
    try:
        return int(os.environ.get(key, setting))
    except ValueError:
        return 0


def unpack_memory(descriptor: bytes) -> Any:
    """Raises TransportError."""
    try:
        return MemoryDesc.unpack(descriptor)
    except RuntimeError as error:
        raise TransportError(f"a memory descriptor cannot be read: {error}") from error


def is_queue_full(status: Any) -> bool:
    """Whether the library refused a read for lack of room in its send queue."""
    return bool(status.Failed()) and "SQ full" in (status.Message() or "")


def state_of(statuses: Sequence[Any]) -> ReadState:
    failed = False
    for status in statuses:
        if status.Failed():
            failed = True
        elif not status.Succeeded():
            return ReadState.IN_FLIGHT
    return ReadState.FAILED if failed else ReadState.DONE


def describe_failure(statuses: Sequence[Any]) -> str:
    """What the library says about the first failed read."""
    for status in statuses:
        if status.Failed():
            return f"{status.Message()} ({status.Code()})"
    return "no read failed"
