"""The RDMA network of a run: machines' NICs, the paths between them, and who watches.

Knows verbs, not the library on top: ``sim.fabric.mori`` builds engines out of devices and queue
pairs. Faults come as rules of ``verdicts`` and through the control verbs here, which come in
pairs (cut/heal, port down/up, speed down and back).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from sim.fabric.control_plane import ControlPlane
from sim.fabric.device import Device, Handler
from sim.fabric.gpu import Gpus
from sim.fabric.link import Links
from sim.fabric.named import CX7
from sim.fabric.nic import Nic
from sim.fabric.profile import MI300X_XGMI, FabricProfile, XgmiProfile
from sim.fabric.queue_pair import QueuePair
from sim.fabric.work import AsyncEvent, Landing, WorkRequestChain
from sim.kernel import Kernel, Node, Process
from sim.verdict import VerdictChain

PostObserver = Callable[[QueuePair, WorkRequestChain], None]
EndObserver = Callable[[WorkRequestChain, str], None]


class LandingObserver(Protocol):
    """Sees the memory immediately before and after bytes land in it."""

    def before_landing(self, landing: Landing) -> None:
        """The bytes at the destination are still the old ones."""

    def after_landing(self, landing: Landing) -> None:
        """The bytes at the destination are the new ones."""


class Fabric:
    """Machines appear when an engine opens a device on them."""

    def __init__(
        self, kernel: Kernel, profile: FabricProfile = CX7, xgmi: XgmiProfile = MI300X_XGMI
    ) -> None:
        self.kernel = kernel
        self.profile = profile
        self.gpus = Gpus(xgmi)
        self.verdicts = VerdictChain(kernel.own)
        self.late_landings = 0
        """Bytes that will still land although their operation is over."""
        self.links = Links(kernel)
        self.control_plane = ControlPlane(self)
        self.devices: list[Device] = []
        self.owners: dict[str, str] = {}
        """Whose process has the library's engine of a key, or had it last."""
        self._nics: dict[tuple[str, int], Nic] = {}
        self._rails: dict[tuple[str, str], int] = {}
        self._cuts: list[frozenset[str]] = []
        self._observers: list[LandingObserver] = []
        self._post_observers: list[PostObserver] = []
        self._end_observers: list[EndObserver] = []
        self._last_key = 0x1000
        self._last_queue_pair_number = 0x100
        kernel.on_crash(self._process_crashed)

    # -------------------------------------------------------------- hardware

    def open_device(self, process: Process, key: str, handle: Handler) -> Device:
        """Open a device for the engine ``key`` of ``process``, on the NIC that is its rail.

        The engines of a machine get its NICs in turn; a restarted engine gets its old one.
        """
        node = process.node
        taken = sum(name == node.name for name, _engine in self._rails)
        rail = self._rails.setdefault((node.name, key), taken % self.profile.nics_per_node)
        device = Device(self, process, key, self.nic(node, rail), handle)
        self.devices.append(device)
        return device

    def nic(self, node: Node, index: int) -> Nic:
        """NIC number ``index`` of a machine."""
        place = (node.name, index)
        if place not in self._nics:
            self._nics[place] = Nic(node, index, self.profile.nic_bytes_per_ns)
        return self._nics[place]

    def queue_pairs(self) -> Iterator[QueuePair]:
        """Every queue pair ever created, in order of devices and creation."""
        for device in self.devices:
            yield from device.queue_pairs

    def may_land(self) -> bool:
        """Whether bytes are under way that will land if nothing else happens."""
        return bool(self.late_landings) or any(q.is_landing for q in self.queue_pairs())

    def next_key(self) -> int:
        """A memory key that no region of this run had before."""
        self._last_key += 1
        return self._last_key

    def next_queue_pair_number(self) -> int:
        """A queue-pair number that no queue pair of this run had before."""
        self._last_queue_pair_number += 1
        return self._last_queue_pair_number

    # --------------------------------------------------------- control verbs

    def path_up(self, one: Nic, other: Nic) -> bool:
        """Whether packets get from one NIC to the other."""
        if not (one.port_up and other.port_up):
            return False
        return frozenset((one.node.name, other.node.name)) not in self._cuts

    def cut(self, node: str, other: str) -> None:
        """No RDMA packet gets through between two machines, in either direction."""
        self._cuts.append(frozenset((node, other)))
        self.kernel.record("rdma-path-cut", nodes=[node, other])
        self._paths_changed()

    def heal(self, node: str, other: str) -> None:
        """The reverse of ``cut``."""
        self._cuts.remove(frozenset((node, other)))
        self.kernel.record("rdma-path-healed", nodes=[node, other])
        self._paths_changed()

    def set_port(self, nic: Nic, *, up: bool) -> None:
        """The cable is pulled, or plugged in again. Devices on the NIC get an event."""
        nic.port_up = up
        self.kernel.record("nic-port", node=nic.node.name, nic=nic.index, up=up)
        for device in self.devices:
            if device.nic is nic and device.alive:
                device.notify(AsyncEvent("PORT_ACTIVE" if up else "PORT_ERR"))
        self._paths_changed()

    def set_speed(self, nic: Nic, fraction: float) -> None:
        """Give a NIC ``fraction`` of its line rate; 1.0 is all of it."""
        nic.set_speed(fraction)
        self.links.speed_changed(nic.egress, nic.ingress)

    def silence(self, queue_pair: QueuePair) -> None:
        """From now on no completion of ``queue_pair`` reaches anybody; bytes still land."""
        self.kernel.record("queue-pair-silent", queue_pair=queue_pair.number)
        queue_pair.silent = True

    def raise_event(self, device: Device, name: str, queue_pair: QueuePair | None = None) -> None:
        """The driver reports an asynchronous event, such as ``QP_FATAL`` of ``queue_pair``."""
        self.kernel.record("async-event", engine=device.key, event=name)
        device.notify(AsyncEvent(name, queue_pair))
        if queue_pair is not None:
            queue_pair.enter_error()

    def _process_crashed(self, process: Process) -> None:
        """Its operating system destroys what the process had opened; nobody tells the peers."""
        for device in self.devices:
            if device.process is process:
                device.crashed()
        self.control_plane.reset(process)
        self._paths_changed()

    def _paths_changed(self) -> None:
        for queue_pair in self.queue_pairs():
            queue_pair.interrupt()
            queue_pair.path_restored()

    # --------------------------------------------------------------- watching

    def on_landing(self, observer: LandingObserver) -> None:
        """``observer`` sees every landing, one call before and one after, in subscription order."""
        self._observers.append(observer)

    def on_post(self, observer: PostObserver) -> None:
        """``observer(queue_pair, chain)`` is called for every chain that is posted."""
        self._post_observers.append(observer)

    def on_end(self, observer: EndObserver) -> None:
        """``observer(chain, status)`` is called for every completion that is reported, with
        the status REFUSED for every chain that the library could not post, and with LOST for
        every one that it gave up because of an event of its queue pair."""
        self._end_observers.append(observer)

    def ended(self, chain: WorkRequestChain, status: str) -> None:
        """Called by whoever reports the end of a chain."""
        for observer in self._end_observers:
            self.kernel.own(observer, chain, status)

    def posted(self, queue_pair: QueuePair, chain: WorkRequestChain) -> None:
        """Called by a queue pair that got a chain."""
        for observer in self._post_observers:
            self.kernel.own(observer, queue_pair, chain)

    @contextmanager
    def observed(self, landing: Landing) -> Iterator[None]:
        """Around the copy."""
        for observer in self._observers:
            self.kernel.own(observer.before_landing, landing)
        yield
        for observer in self._observers:
            self.kernel.own(observer.after_landing, landing)

    def record(
        self, kind: str, chain: WorkRequestChain, queue_pair: QueuePair, **fields: str | int
    ) -> None:
        """Write what happened to a chain to the event log."""
        peer = queue_pair.peer
        self.kernel.record(
            kind,
            initiator=queue_pair.device.key,
            target=peer.device.key if peer is not None else "",
            operation=chain.operation.value,
            uid=chain.transfer_uid,
            work_requests=chain.count,
            bytes=chain.segments.total_bytes,
            queue_pair=queue_pair.number,
            **fields,
        )
