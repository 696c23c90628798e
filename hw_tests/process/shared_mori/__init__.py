"""Stands in for ``mori.io`` between processes of one machine: one reads another's memory itself.

The owner of the memory takes no part in a read, as with RDMA: it may be stopped or busy. What it
does take part in is real here, too: a TCP connection stands for the queue pair, so the kernel tells
of a peer's death, and a peer that is stopped does not answer a new session. There is RDMA only, one
queue pair for each pair of engines, and no notifications.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NoReturn

from hw_tests.process.shared_mori.engine import IOEngine, IOEngineSession
from hw_tests.process.shared_mori.status import TransferStatus
from sim.fabric.mori.config import (
    FabricBackendConfig,
    IOEngineConfig,
    RdmaBackendConfig,
    XgmiBackendConfig,
)
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.enums import (
    BackendType,
    MemoryLocationType,
    PeerFailureReason,
    PollCqMode,
    StatusCode,
)
from sim.fabric.mori.failures import PeerFailureEvent

_EXPORTS = {
    each.__name__: each
    for each in (
        *(IOEngine, IOEngineSession, IOEngineConfig, EngineDesc, MemoryDesc),
        *(RdmaBackendConfig, XgmiBackendConfig, FabricBackendConfig),
        *(BackendType, MemoryLocationType, PeerFailureReason, PollCqMode, StatusCode),
        PeerFailureEvent,
    )
}


def install() -> None:
    """Be ``mori.io`` in this process from now on.

    Raises:
        RuntimeError: there is another already.
    """
    if "mori" in sys.modules:
        raise RuntimeError("mori is loaded already; start the engine in a process of its own")
    mori, io, cpp = (ModuleType(name) for name in ("mori", "mori.io", "mori.cpp"))
    io.__dict__.update(_EXPORTS)
    io.__dict__["__getattr__"] = lambda name: _missing("mori.io", name)
    cpp.__dict__["TransferStatus"] = TransferStatus
    mori.__dict__.update(io=io, cpp=cpp)
    sys.modules.update({"mori": mori, "mori.io": io, "mori.cpp": cpp})


def _missing(module: str, name: str) -> NoReturn:
    raise AttributeError(f"{module}.{name} is not stood in for between processes")
