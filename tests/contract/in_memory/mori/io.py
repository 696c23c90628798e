"""Stands in for `mori.io` within one process: a read is a copy, done when it is posted."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import torch

from sim.fabric.mori.config import IOEngineConfig, RdmaBackendConfig, XgmiBackendConfig
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.enums import BackendType, MemoryLocationType, PollCqMode, StatusCode

__all__ = [
    "BackendType",
    "EngineDesc",
    "IOEngine",
    "IOEngineConfig",
    "MemoryDesc",
    "PollCqMode",
    "RdmaBackendConfig",
    "StatusCode",
    "XgmiBackendConfig",
]


class IOEngine:
    """What the connector calls of it."""

    def __init__(self, key: str, config: IOEngineConfig) -> None:
        self._desc = EngineDesc.make(key, "node", "host", config.host, config.port, 1)
        self._memory_ids = itertools.count()
        self._uids = itertools.count()
        self._kept: list[torch.Tensor] = []

    def create_backend(self, _kind: BackendType, _config: Any) -> None:
        """Nothing to set up."""

    def get_engine_desc(self) -> EngineDesc:
        return self._desc

    def register_remote_engine(self, _desc: EngineDesc) -> None:
        """Everybody is here."""

    def register_torch_tensor(self, tensor: torch.Tensor) -> MemoryDesc:
        self._kept.append(tensor)
        location, number = MemoryLocationType.CPU, next(self._memory_ids)
        return MemoryDesc.make(
            self._desc.key, number, -1, tensor.data_ptr(), tensor.nbytes, location
        )

    def create_session(self, ours: MemoryDesc, theirs: MemoryDesc) -> Session:
        return Session(ours, theirs)

    def allocate_transfer_uid(self) -> int:
        return next(self._uids)


class Session:
    """Two memories."""

    def __init__(self, ours: MemoryDesc, theirs: MemoryDesc) -> None:
        self._ours, self._theirs = ours, theirs

    def alive(self) -> bool:
        return True

    def batch_read(self, ours: list[int], theirs: list[int], sizes: list[int], _uid: int) -> Status:
        for to, source, size in zip(ours, theirs, sizes, strict=True):
            assert 0 <= to <= self._ours.size - size
            assert 0 <= source <= self._theirs.size - size
            ctypes.memmove(self._ours.data + to, self._theirs.data + source, size)
        return Status()


class Status:
    """Of a read that has succeeded."""

    def Succeeded(self) -> bool:  # the library's name
        return True

    def Failed(self) -> bool:
        return False

    def Message(self) -> str:
        return ""

    def Code(self) -> StatusCode:
        return StatusCode.SUCCESS
