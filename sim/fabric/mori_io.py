"""The module that stands in for ``mori.io`` 1.2.4 in a run.

One module serves all simulated processes of the run: an engine belongs to the process whose
task creates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

from sim.errors import UnsupportedByFacade
from sim.fabric.fabric import Fabric
from sim.fabric.mori import config, descriptors, enums, failures
from sim.fabric.mori.engine import IOEngine
from sim.fabric.mori.session import IOEngineSession
from sim.fabric.mori.settings import MoriSettings
from sim.fabric.mori.status import TransferStatus
from sim.kernel import Kernel
from sim.kernel.task import call_site

_EMPTY: Mapping[str, str] = MappingProxyType({})


def make(kernel: Kernel, fabric: Fabric, environ: Mapping[str, str] = _EMPTY) -> ModuleType:
    """``mori.io``, with the ``MORI_IO_*`` variables of ``environ`` in effect.

    An engine reads them when it is created, in the process that creates it.

    Raises:
        UsageError: a variable is no number.
    """
    module = ModuleType("mori.io")
    MoriSettings.from_environ(environ)
    status = type("TransferStatus", (TransferStatus,), {"_kernel": kernel})
    session = type("IOEngineSession", (IOEngineSession,), {"_status": status})
    bound = {"_fabric": fabric, "_environ": environ, "_session": session, "_status": status}
    contents: dict[str, Any] = {
        "IOEngine": type("IOEngine", (IOEngine,), bound),
        "IOEngineSession": session,
        "IOEngineConfig": config.IOEngineConfig,
        "RdmaBackendConfig": config.RdmaBackendConfig,
        "XgmiBackendConfig": config.XgmiBackendConfig,
        "FabricBackendConfig": config.FabricBackendConfig,
        "EngineDesc": descriptors.EngineDesc,
        "MemoryDesc": descriptors.MemoryDesc,
        "BackendType": enums.BackendType,
        "MemoryLocationType": enums.MemoryLocationType,
        "StatusCode": enums.StatusCode,
        "PollCqMode": enums.PollCqMode,
        "PeerFailureEvent": failures.PeerFailureEvent,
        "PeerFailureReason": enums.PeerFailureReason,
        "TORCH_DEVICE_TYPE_MAP": {
            "cpu": enums.MemoryLocationType.CPU,
            "cuda": enums.MemoryLocationType.GPU,
        },
        "set_log_level": lambda level: None,
        "__getattr__": lambda name: _missing("mori.io", name),
    }
    module.__dict__.update(contents)
    return module


def make_cpp(mori_io: ModuleType) -> ModuleType:
    """``mori.cpp``, which has one thing that callers need and ``mori.io`` does not export."""
    module = ModuleType("mori.cpp")
    module.__dict__["TransferStatus"] = mori_io.IOEngine._status
    module.__dict__["__getattr__"] = lambda name: _missing("mori.cpp", name)
    return module


def _missing(module: str, name: str) -> NoReturn:
    if name.startswith("__"):  # the import system asks for these and expects to be told no
        raise AttributeError(name)
    raise UnsupportedByFacade(f"{module}.{name} is not simulated; used at {call_site()}")
