"""The RDMA backend of an engine: endpoints per peer, memory regions, completions, failures.

Endpoints belong to a pair of engines, not to a session: all sessions, in both directions, share
them, and nothing ever rebuilds one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.fabric.control_plane import ControlPlaneError, ControlServer
from sim.fabric.memory import MemoryRegion
from sim.fabric.mori import messages
from sim.fabric.mori.config import RdmaBackendConfig
from sim.fabric.mori.descriptors import EngineDesc, MemoryDesc
from sim.fabric.mori.endpoint import Endpoint
from sim.fabric.mori.enums import MemoryLocationType, PeerFailureReason, StatusCode
from sim.fabric.mori.executor import Executor
from sim.fabric.mori.failures import EVENT_REASONS, PeerFailureEvent, PeerFailures
from sim.fabric.mori.notifications import Inbound
from sim.fabric.mori.poster import Poster
from sim.fabric.mori.settings import MoriSettings
from sim.fabric.queue_pair import QueuePair
from sim.fabric.verdicts import ControlItem, PeerPair
from sim.fabric.work import (
    AsyncEvent,
    Completion,
    CompletionStatus,
    Received,
    RemoteRegion,
    Send,
)
from sim.kernel import Process

if TYPE_CHECKING:
    from sim.fabric.fabric import Fabric

XGMI_ONLY_PORT = 1
"""In the descriptor of an engine that fell back to XGMI: nobody listens."""


class RdmaBackend:
    """Opened with ``create_backend``, closed with ``remove_backend``."""

    failed_session = messages.NO_BACKEND

    def __init__(
        self,
        fabric: Fabric,
        process: Process,
        key: str,
        config: RdmaBackendConfig,
        settings: MoriSettings,
    ) -> None:
        self.fabric = fabric
        self.kernel = fabric.kernel
        self.key = key
        self.config = config
        self.settings = settings
        self.device = fabric.open_device(process, key, self._on_notice)
        self.executor = self._start_executor()
        self.failures = PeerFailures()
        self.inbound = Inbound()
        self.endpoints: dict[str, list[Endpoint]] = {}
        self.remote_engines: dict[str, EngineDesc] = {}
        self._by_queue_pair: dict[int, Endpoint] = {}
        self._port_down = False
        self._memory: dict[int, tuple[MemoryDesc, Any]] = {}
        self._regions: dict[int, MemoryRegion] = {}
        self._regions_by_address: dict[int, MemoryRegion] = {}
        self._remote_regions: dict[tuple[str, int, int], RemoteRegion] = {}

    def _start_executor(self) -> Executor | None:
        config = self.config
        if config.num_worker_threads <= 1 or config.num_nics_per_transfer > 1:
            return None
        return Executor(self.device, min(config.qp_per_transfer, config.num_worker_threads))

    def listen(self, host: str, port: int) -> int:
        """Start the control-plane server; returns its port."""
        return self.fabric.control_plane.listen(self.device, self, host, port)

    def close(self) -> None:
        """Destroy the queue pairs; transfers under way stay so for ever."""
        self.device.close()

    # ---------------------------------------------------------------- memory

    def register_memory(self, desc: MemoryDesc, keep_alive: Any) -> None:
        """Note what ``desc`` is about. NICs learn of it when the first session needs it."""
        self._memory[desc.id] = (desc, keep_alive)

    def deregister_memory(self, desc: MemoryDesc) -> None:
        """Forget ``desc``. The region found is that of the first registration of its address."""
        self._memory.pop(desc.id, None)
        self._regions.pop(desc.id, None)
        region = self._regions_by_address.pop(desc.data, None)
        if region is not None:
            region.invalidate()

    def region(self, desc: MemoryDesc) -> MemoryRegion:
        """The memory region of a descriptor of this engine, made at its first use."""
        region = self._regions.get(desc.id)
        if region is None:
            _desc, keep_alive = self._memory.get(desc.id, (desc, None))
            region = self.device.register(desc.data, desc.size, keep_alive)
            self._regions[desc.id] = region
            self._regions_by_address.setdefault(desc.data, region)
        return region

    # -------------------------------------------------------------- sessions

    def can_handle(self, local: MemoryDesc, remote: MemoryDesc) -> bool:
        """Whether the backend can carry transfers to the owner of ``remote``."""
        engine = self.remote_engines.get(remote.engine_key)
        return engine is not None and engine.port != XGMI_ONLY_PORT

    def connect(self, local: MemoryDesc, remote: MemoryDesc) -> Poster:
        """Make what is missing for transfers between two memories; may park for seconds."""
        engine = self.remote_engines[remote.engine_key]
        region = self.region(local)
        endpoints = self.endpoints.setdefault(engine.key, [])
        while len(endpoints) < self.config.qp_per_transfer:
            self._connect_endpoint(engine)
        return Poster(
            self,
            endpoints[: self.config.qp_per_transfer],
            region,
            self._remote_region(engine, remote),
            is_gpu=local.loc == MemoryLocationType.GPU,
        )

    def _connect_endpoint(self, engine: EngineDesc) -> None:
        queue_pair = self._new_queue_pair()
        other = self._ask(
            engine,
            "register-endpoint",
            lambda server: server.engine.accept_endpoint(self.key, queue_pair),
        )
        queue_pair.connect(other)
        self._add_endpoint(engine.key, queue_pair)

    def accept_endpoint(self, remote_key: str, other: QueuePair) -> QueuePair:
        """A peer's request: one more connection with it."""
        queue_pair = self._new_queue_pair()
        queue_pair.connect(other)
        self._add_endpoint(remote_key, queue_pair)
        return queue_pair

    def _new_queue_pair(self) -> QueuePair:
        depth = self.settings.send_queue_depth(self.config)
        return self.device.create_queue_pair(depth, self.settings.timers)

    def _add_endpoint(self, remote_key: str, queue_pair: QueuePair) -> None:
        endpoint = Endpoint(queue_pair, remote_key)
        self.endpoints.setdefault(remote_key, []).append(endpoint)
        self._by_queue_pair[queue_pair.number] = endpoint
        if self.config.enable_notification:
            queue_pair.post_receives(self.config.notif_per_qp)

    def _remote_region(self, engine: EngineDesc, desc: MemoryDesc) -> RemoteRegion:
        known = (engine.key, desc.device_id, desc.id)
        if known not in self._remote_regions:
            region = self._ask(
                engine, "ask-memory-region", lambda server: server.engine.describe(desc.id)
            )
            got = region.size if region is not None else 0
            if got != desc.size or region is None:
                raise RuntimeError(
                    "RdmaBackend::CreateSession: remote MR size mismatch for engine "
                    f"{engine.key} mem {desc.id}: expected={desc.size} got={got}"
                )
            self._remote_regions[known] = region
        return self._remote_regions[known]

    def describe(self, memory_id: int) -> RemoteRegion | None:
        """A peer's request: where a memory is and with which key to use it."""
        if memory_id not in self._memory:
            return None
        region = self.region(self._memory[memory_id][0])
        return RemoteRegion(region.key, region.size)

    def _ask(self, engine: EngineDesc, kind: str, answer: Any) -> Any:
        server = self.fabric.control_plane.server(engine.host, engine.port)
        item = ControlItem(self._pair(engine, server), kind)
        try:
            return self.fabric.control_plane.exchange(
                item, engine.host, engine.port, answer, self.settings.control_timeout_ns
            )
        except ControlPlaneError as error:
            raise RuntimeError(str(error)) from None

    def _pair(self, engine: EngineDesc, server: ControlServer | None) -> PeerPair:
        node = server.device.process.node.name if server is not None else engine.hostname
        return PeerPair(self.key, self.device.process.node.name, engine.key, node)

    # ------------------------------------------------ the completion thread

    def _on_notice(self, notice: Completion | Received | AsyncEvent) -> None:
        if isinstance(notice, Completion):
            self._on_completion(notice)
        elif isinstance(notice, Received):
            endpoint = self._by_queue_pair[notice.queue_pair]
            self.inbound.arrived(endpoint.remote_key, notice.message)
            endpoint.queue_pair.post_receives(1)
        elif self.settings.watch_async_events:
            self._on_event(notice)

    def _on_completion(self, completion: Completion) -> None:
        endpoint = self._by_queue_pair[completion.queue_pair]
        if completion.status is CompletionStatus.RETRY_EXC:
            endpoint.failed = True
            self._add_failure(
                PeerFailureReason.PEER_UNREACHABLE, endpoint, detail=messages.UNREACHABLE
            )
        if isinstance(completion.chain, Send):
            endpoint.queue_pair.send_queue.give_back(1)
            return  # the transfer's status does not depend on it
        if not completion.is_tail:
            return  # of an unsignaled work request: nobody's status
        transfer = endpoint.close_record(completion.chain)
        if transfer is None:
            return
        if completion.status is CompletionStatus.SUCCESS:
            transfer.account(completion.chain.credit)
        else:
            text = messages.completion_text(completion)
            transfer.status.Update(StatusCode.ERR_RDMA_OP, text)

    def _on_event(self, event: AsyncEvent) -> None:
        if event.name == "PORT_ACTIVE":
            self._port_down = False
            self.failures.forget(PeerFailureReason.LOCAL_PORT_DOWN)
            return
        reason = EVENT_REASONS.get(event.name)
        if reason is None:
            return
        text = messages.event_text(event.name)
        if event.name == "PORT_ERR":
            self._port_down = True
            self._add_failure(reason, None, port=1, detail=text)
        elif event.queue_pair is not None:
            endpoint = self._by_queue_pair[event.queue_pair.number]
            self._lose(endpoint, text)
            self._add_failure(reason, endpoint, detail=text)
        else:
            for endpoint in self._by_queue_pair.values():
                self._lose(endpoint, text)
            self._add_failure(reason, None, detail=text)

    def _lose(self, endpoint: Endpoint, text: str) -> None:
        endpoint.failed = True
        if self.settings.fail_on_async_event:
            endpoint.degraded = endpoint.by_event = True
            endpoint.fail_all(text)

    def _add_failure(
        self, reason: PeerFailureReason, endpoint: Endpoint | None, *, port: int = 0, detail: str
    ) -> None:
        self.failures.add(
            PeerFailureEvent(
                endpoint.remote_key if endpoint is not None else "",
                reason,
                endpoint.queue_pair.number if endpoint is not None else 0,
                1 if endpoint is not None else port,
                self.device.nic.device_name,
                detail,
            )
        )

    def alive(self, endpoints: list[Endpoint]) -> bool:
        """What ``alive()`` of a session on ``endpoints`` says."""
        return not self._port_down and not any(endpoint.failed for endpoint in endpoints)
