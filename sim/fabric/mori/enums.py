"""The library's enumerations, which behave as classic pybind11 ones do.

They are not equal to integers, convert to them with ``int()``, and print as ``Class.NAME``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class PybindEnum:
    """Members are class attributes, made from ``_names`` when the class is."""

    _names: ClassVar[dict[str, int]] = {}
    __members__: ClassVar[dict[str, Any]]

    def __init__(self, value: int) -> None:
        self._value = value

    def __init_subclass__(cls) -> None:
        cls.__members__ = {name: cls(value) for name, value in cls._names.items()}
        for name, member in cls.__members__.items():
            setattr(cls, name, member)

    @property
    def value(self) -> int:
        """The number."""
        return self._value

    @property
    def name(self) -> str:
        """The name without the class, ``???`` when the number has none."""
        found = (name for name, value in self._names.items() if value == self._value)
        return next(found, "???")

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return other.__class__ is self.__class__ and other._value == self._value

    def __hash__(self) -> int:
        return self._value

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{self}: {self._value}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class BackendType(PybindEnum):
    """What carries a transfer."""

    Unknown: ClassVar[BackendType]
    XGMI: ClassVar[BackendType]
    RDMA: ClassVar[BackendType]
    TCP: ClassVar[BackendType]
    FABRIC: ClassVar[BackendType]
    _names: ClassVar[dict[str, int]] = {"Unknown": 0, "XGMI": 1, "RDMA": 2, "TCP": 3, "FABRIC": 4}


class MemoryLocationType(PybindEnum):
    """Where memory is."""

    Unknown: ClassVar[MemoryLocationType]
    CPU: ClassVar[MemoryLocationType]
    GPU: ClassVar[MemoryLocationType]
    _names: ClassVar[dict[str, int]] = {"Unknown": 0, "CPU": 1, "GPU": 2}


class StatusCode(PybindEnum):
    """State of a transfer; numbers above 10 are errors."""

    SUCCESS: ClassVar[StatusCode]
    INIT: ClassVar[StatusCode]
    IN_PROGRESS: ClassVar[StatusCode]
    ERR_INVALID_ARGS: ClassVar[StatusCode]
    ERR_NOT_FOUND: ClassVar[StatusCode]
    ERR_RDMA_OP: ClassVar[StatusCode]
    ERR_BAD_STATE: ClassVar[StatusCode]
    ERR_GPU_OP: ClassVar[StatusCode]
    _names: ClassVar[dict[str, int]] = {
        "SUCCESS": 0,
        "INIT": 1,
        "IN_PROGRESS": 2,
        "ERR_INVALID_ARGS": 11,
        "ERR_NOT_FOUND": 12,
        "ERR_RDMA_OP": 13,
        "ERR_BAD_STATE": 14,
        "ERR_GPU_OP": 15,
    }


class PollCqMode(PybindEnum):
    """How the completion thread waits. Both keep a core busy; here both cost nothing."""

    POLLING: ClassVar[PollCqMode]
    EVENT: ClassVar[PollCqMode]
    _names: ClassVar[dict[str, int]] = {"POLLING": 0, "EVENT": 1}


class PeerFailureReason(PybindEnum):
    """Why ``alive()`` turned False."""

    UNKNOWN: ClassVar[PeerFailureReason]
    PEER_UNREACHABLE: ClassVar[PeerFailureReason]
    LOCAL_QP_ERROR: ClassVar[PeerFailureReason]
    LOCAL_PORT_DOWN: ClassVar[PeerFailureReason]
    LOCAL_DEVICE_FATAL: ClassVar[PeerFailureReason]
    LOCAL_CQ_ERROR: ClassVar[PeerFailureReason]
    _names: ClassVar[dict[str, int]] = {
        "UNKNOWN": 0,
        "PEER_UNREACHABLE": 1,
        "LOCAL_QP_ERROR": 2,
        "LOCAL_PORT_DOWN": 3,
        "LOCAL_DEVICE_FATAL": 4,
        "LOCAL_CQ_ERROR": 5,
    }
