"""Descriptors that engines hand to each other, and their msgpack form on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from sim.fabric.gpu import IPC_HANDLE_BYTES
from sim.fabric.mori.enums import MemoryLocationType

_NO_HANDLE = bytes(IPC_HANDLE_BYTES)
_NO_FABRIC = (_NO_HANDLE, -1, "", 0, 0)
"""Fields of a FABRIC backend, which is not simulated: handle, two names of a pod, offset, size."""


def _unpack(packed: bytes, fields: int) -> list[Any]:
    try:
        values = msgspec.msgpack.decode(packed)
    except (msgspec.DecodeError, TypeError) as error:
        raise RuntimeError("std::bad_cast") from error
    if not isinstance(values, list) or len(values) != fields:
        raise RuntimeError("std::bad_cast")
    return values


class EngineDesc:
    """Who an engine is and where its control plane listens. Not constructed by callers."""

    __hash__ = None  # type: ignore[assignment]

    _FIELDS = ("key", "node_id", "hostname", "host", "port", "pid")

    def __init__(self) -> None:
        raise TypeError("mori.io.EngineDesc: No constructor defined!")

    @classmethod
    def make(cls, *values: Any) -> EngineDesc:
        """For the engine itself."""
        if not all(map(isinstance, values, (str, str, str, str, int, int))):
            raise RuntimeError("std::bad_cast")
        desc = cls.__new__(cls)
        desc._values = values
        return desc

    _values: tuple[Any, ...]

    @property
    def key(self) -> str:
        """The engine's name."""
        return str(self._values[0])

    @property
    def node_id(self) -> str:
        """Identity of the machine."""
        return str(self._values[1])

    @property
    def hostname(self) -> str:
        """Name of the machine."""
        return str(self._values[2])

    @property
    def host(self) -> str:
        """Address of the control plane."""
        return str(self._values[3])

    @property
    def port(self) -> int:
        """Port of the control plane; 0 until there is an RDMA backend."""
        return int(self._values[4])

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._values[5])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EngineDesc) and self._values == other._values

    def pack(self) -> bytes:
        """As a msgpack array of the six fields."""
        return msgspec.msgpack.encode(self._values)

    @staticmethod
    def unpack(packed: bytes, /) -> EngineDesc:
        """The reverse; RuntimeError for anything else."""
        return EngineDesc.make(*_unpack(packed, len(EngineDesc._FIELDS)))


class MemoryDesc:
    """Registered memory: whose, where, how much."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._set("", 0, -1, 0, 0, MemoryLocationType.Unknown)

    def _set(
        self,
        engine_key: str,
        memory_id: int,
        device_id: int,
        data: int,
        size: int,
        loc: MemoryLocationType,
        device_bus_id: str = "",
    ) -> None:
        self._ipc_handle = _NO_HANDLE
        self._ipc_offset = 0
        self._numa_node = -1
        self._fabric: tuple[Any, ...] = _NO_FABRIC
        self._device_bus_id = device_bus_id
        self._engine_key = engine_key
        self._id = memory_id
        self._device_id = device_id
        self._data = data
        self._size = size
        self._loc = loc

    @classmethod
    def make(
        cls,
        engine_key: str,
        memory_id: int,
        device_id: int,
        data: int,
        size: int,
        loc: MemoryLocationType,
        device_bus_id: str = "",
    ) -> MemoryDesc:
        """For the engine itself."""
        desc = cls()
        desc._set(engine_key, memory_id, device_id, data, size, loc, device_bus_id)
        return desc

    def exported(self, ipc_handle: bytes, ipc_offset: int) -> None:
        """Other processes can map the memory by this handle of its allocation."""
        self._ipc_handle, self._ipc_offset = ipc_handle, ipc_offset

    @property
    def engine_key(self) -> str:
        """The engine that registered the memory."""
        return self._engine_key

    @property
    def id(self) -> int:
        """Number of the registration, from 0 in every engine."""
        return self._id

    @property
    def device_id(self) -> int:
        """GPU, or -1 for host memory."""
        return self._device_id

    @property
    def device_bus_id(self) -> str:
        """PCI address of the GPU; empty for host memory."""
        return self._device_bus_id

    @property
    def numa_node(self) -> int:
        """-1 of memory that is registered here: unknown."""
        return self._numa_node

    @property
    def data(self) -> int:
        """Address in the owner's process."""
        return self._data

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def loc(self) -> MemoryLocationType:
        """Host or GPU memory."""
        return self._loc

    @property
    def ipc_handle(self) -> bytes:
        """64 bytes by which others map the memory; zeros when it was not exported."""
        return self._ipc_handle

    @property
    def ipc_offset(self) -> int:
        """Where in its allocation the memory begins."""
        return self._ipc_offset

    @property
    def is_exported(self) -> bool:
        """Whether there is a handle."""
        return self._ipc_handle != _NO_HANDLE

    def _identity(self) -> tuple[Any, ...]:
        place = (self._device_id, self._device_bus_id, self._numa_node, self._loc)
        return (self._engine_key, self._id, *place, self._data, self._size, self._ipc_offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryDesc) and self._identity() == other._identity()

    def pack(self) -> bytes:
        """As a msgpack array of 15 fields."""
        return msgspec.msgpack.encode(
            [
                *(self._engine_key, self._id, self._device_id, self.device_bus_id),
                *(self._data, self._size, int(self._loc), self._ipc_handle, self.numa_node),
                *(self._ipc_offset, *self._fabric),
            ]
        )

    @staticmethod
    def unpack(packed: bytes, /) -> MemoryDesc:
        """The reverse; RuntimeError for anything else."""
        key, memory_id, device_id, bus, data, size, loc, handle, numa, offset, *fabric = _unpack(
            packed, 15
        )
        numbers = (memory_id, device_id, data, size, loc, numa, offset)
        if not all(map(isinstance, (key, bus, handle), (str, str, bytes))):
            raise RuntimeError("std::bad_cast")
        if not all(isinstance(n, int) for n in numbers) or len(handle) != IPC_HANDLE_BYTES:
            raise RuntimeError("std::bad_cast")
        location = MemoryLocationType(loc)
        desc = MemoryDesc.make(key, memory_id, device_id, data, size, location, bus)
        desc.exported(handle, offset)
        desc._numa_node, desc._fabric = numa, tuple(fabric)
        return desc
