"""The backends of an engine, and which of them carries a pair of memories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from sim.errors import UnsupportedByFacade
from sim.fabric.control_plane import AddressInUse
from sim.fabric.mori import messages
from sim.fabric.mori.backend import XGMI_ONLY_PORT, RdmaBackend
from sim.fabric.mori.config import RdmaBackendConfig, XgmiBackendConfig
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.enums import BackendType, MemoryLocationType
from sim.fabric.mori.exit import exit_process
from sim.fabric.mori.settings import MoriSettings
from sim.fabric.mori.xgmi import XgmiBackend
from sim.kernel import Process
from sim.kernel.task import call_site

if TYPE_CHECKING:
    from sim.fabric.fabric import Fabric

Backend = XgmiBackend | RdmaBackend
_Route = tuple[str, MemoryLocationType, MemoryLocationType, int, int]


class Backends:
    """At most one of each kind. Those that come later do not learn what was registered before."""

    def __init__(
        self, fabric: Fabric, process: Process, key: str, node_id: str, settings: MoriSettings
    ) -> None:
        self.xgmi: XgmiBackend | None = None
        self.rdma: RdmaBackend | None = None
        self._fabric = fabric
        self._process = process
        self._key = key
        self._node_id = node_id
        self._settings = settings
        self._routes: dict[_Route, type[Backend]] = {}

    def __iter__(self) -> Iterator[Backend]:
        """Those there are, in the order in which they are asked."""
        if self.xgmi is not None:
            yield self.xgmi
        if self.rdma is not None:
            yield self.rdma

    def create(self, type: BackendType, config: Any, host: str, port: int) -> int:
        """Make a backend; returns the engine's port from now on."""
        if type == BackendType.TCP and config is None:
            raise NotImplementedError("backend not implemented yet")
        if type in (BackendType.TCP, BackendType.Unknown):
            self._exit("assertion failed: backend type")
        if type == BackendType.XGMI:
            self._create_xgmi(config)
            return port
        if type == BackendType.RDMA:
            return self._create_rdma(config, host, port)
        raise UnsupportedByFacade(f"mori.io {type} backend is not simulated, at {call_site()}")

    def _create_xgmi(self, config: XgmiBackendConfig | None) -> None:
        config = config if config is not None else XgmiBackendConfig()
        self.xgmi = XgmiBackend(
            self._fabric, self._process, self._key, self._node_id, config, self._settings
        )

    def _create_rdma(self, config: RdmaBackendConfig | None, host: str, port: int) -> int:
        config = self._settings.applied_to(config if config is not None else RdmaBackendConfig())
        config.check()
        if not self._fabric.profile.nics_per_node:
            if not (self._settings.falls_back_to_xgmi and self._fabric.gpus.profile.peer_access):
                raise RuntimeError(messages.NO_DEVICE)
            self._create_xgmi(None)
            return XGMI_ONLY_PORT
        backend = RdmaBackend(self._fabric, self._process, self._key, config, self._settings)
        try:
            port = backend.listen(host, port)
        except AddressInUse as error:
            self._exit(f"bind {error}: Address already in use")
        self.rdma = backend
        return port

    def _exit(self, reason: str) -> NoReturn:
        exit_process(self._fabric.kernel, self._process, reason)

    def remove(self, type: BackendType) -> bool:
        """Close a backend, if there is one of that kind."""
        backend = {BackendType.XGMI: self.xgmi, BackendType.RDMA: self.rdma}.get(type)
        if backend is None:
            return False
        backend.close()
        if type == BackendType.XGMI:
            self.xgmi = None
        else:
            self.rdma = None
        return True

    def register_remote_engine(self, desc: EngineDesc) -> None:
        """Make a peer known to the backends there are."""
        for backend in self:
            backend.remote_engines[desc.key] = desc

    def deregister_remote_engine(self, desc: EngineDesc) -> None:
        """Forget a peer's descriptor."""
        for backend in self:
            backend.remote_engines.pop(desc.key, None)

    def route(self, local: MemoryDesc, remote: MemoryDesc) -> Backend | None:
        """Who carries transfers between two memories: who did so before, else XGMI, else RDMA."""
        route = (remote.engine_key, local.loc, remote.loc, local.device_id, remote.device_id)
        able = [backend for backend in self if backend.can_handle(local, remote)]
        if not able:
            return None
        known = self._routes.get(route)
        backend = next((backend for backend in able if type(backend) is known), able[0])
        self._routes[route] = type(backend)
        return backend
