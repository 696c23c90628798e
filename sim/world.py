"""Everything of one run that is simulated: clock, network, fabric, facades, processes, probes.

The world is built for one run and thrown away. It connects the parts; what they do is said in
their own packages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from vllm.utils import func_utils

from sim.engine.groups import Rendezvous
from sim.engine.guest_roots import guest_roots
from sim.engine.hand_offs import HandOffs
from sim.engine.landings import LandingWatch, MemoryMap
from sim.engine.owners import HashOwners
from sim.fabric import CX7, Fabric, FabricProfile
from sim.guest.cpp_errors import keep_no_native_stacks
from sim.guest.entropy import chance_from_seed
from sim.guest.facades.processes import SideProgram
from sim.guest.facades.registry import make_facades
from sim.guest.fence import fence
from sim.guest.guest_log import GuestLog
from sim.guest.imports import GuestImporter
from sim.guest.process import GuestProcess
from sim.guest.shared_clock import virtual_clock_in_shared_modules
from sim.guest.shared_globals import SharedGlobals
from sim.guest.sources import GuestSources
from sim.kernel import Kernel, Node, Process, Seed
from sim.model.arena import Arena
from sim.network import Network
from sim.probes import Probes
from sim.reference.back_door import BackDoor
from sim.units import US
from sim.verdict import VerdictChain
from sim.workload.tokens import DEFAULT_VOCAB_SIZE

if TYPE_CHECKING:
    from sim.engine.engine import Engine
    from sim.engine.worker import Worker


class World:
    """The simulated surroundings of all engines of one run."""

    def __init__(
        self,
        seed: Seed,
        *,
        owners: HashOwners,
        perturb: bool = False,
        skip_empty_steps: bool = True,
        overlay: Path | None = None,
        fabric: FabricProfile = CX7,
        network_latency_ns: int = 50 * US,
        vocab_size: int = DEFAULT_VOCAB_SIZE,
        check: Literal["incremental", "full"] = "incremental",
    ) -> None:
        self.kernel = Kernel(seed, perturb=perturb, skips_looks=skip_empty_steps)
        self.owners = owners
        self.vocab_size = vocab_size
        self.check = check
        self.network = Network(self.kernel, latency_ns=network_latency_ns)
        self.fabric = Fabric(self.kernel, fabric)
        self.facades: dict[str, ModuleType] = make_facades(
            self.kernel, self.network, self.fabric, self._run_side_program
        )
        self.sources = GuestSources(overlay)
        self.arena = Arena()
        self.memory_map = MemoryMap()
        self.probes = Probes(self.kernel.own)
        self.probes.add(LandingWatch(self.memory_map))
        back_door = BackDoor(self.kernel)
        self.probes.add(back_door)
        self.facades["back_door"] = back_door.facade()
        self.fabric.on_landing(self.probes)
        self.fabric.on_post(lambda _pair, chain: self.probes.transfer_posted(chain))
        self.fabric.on_end(self.probes.transfer_ended)
        self.hand_offs = HandOffs()
        self.device_verdicts = VerdictChain(self.kernel.own)
        """Rules about ``DeviceWrite`` (sim.engine.device_writes)."""
        self.nodes: dict[str, Node] = {}
        self._globals = SharedGlobals()
        self._guests: list[GuestProcess] = []
        self._rendezvous: dict[tuple[str, int], Rendezvous] = {}
        self.engine_errors: list[tuple[Engine, BaseException]] = []
        self.kernel.on_switch(self._globals.switch_to)

    @contextmanager
    def running(self) -> Iterator[World]:
        """The real world is fenced off inside; everything shared is put back afterwards."""
        keep_no_native_stacks()
        with ExitStack() as stack:
            stack.enter_context(virtual_clock_in_shared_modules(self.kernel, self.facades["time"]))
            stack.callback(self.arena.release)
            stack.callback(self._forget_guests)
            stack.callback(self._globals.restore)
            stack.enter_context(chance_from_seed(self.kernel))
            stack.enter_context(fence(self.kernel))
            stack.enter_context(GuestLog(self.kernel, self._exception_logged).attached())
            stack.enter_context(self.kernel.running())
            stack.callback(self._silence_guests)
            yield self

    def _exception_logged(self, error: BaseException) -> None:
        task = self.kernel.current()
        if task is not None:
            self.probes.exception_logged(task.process.owner, error)

    def add_node(self, name: str) -> Node:
        """A machine with the next address."""
        node = Node(name, f"10.0.0.{len(self.nodes) + 1}")
        self.nodes[name] = node
        return node

    def new_guest_process(self, engine: Engine, name: str) -> GuestProcess:
        """A process of ``engine`` with fresh copies of the guest modules."""
        process = Process(engine.node, name, engine.incarnation, owner=engine.name)
        roots = guest_roots(None if engine.connector is None else engine.connector.kind)
        label = f"{engine.name}_{name}_{engine.incarnation}"
        guest = GuestProcess(process, GuestImporter(label, roots, self.facades, self.sources))
        self._guests.append(guest)
        return guest

    def rendezvous(self, group: str, engine: Engine, size: int) -> Rendezvous:
        """Where those meet for host-side collectives who give the same name of a group and have
        the incarnation of ``engine``."""
        key = (group, engine.incarnation)
        if key not in self._rendezvous:
            self._rendezvous[key] = Rendezvous(self.kernel, size)
        return self._rendezvous[key]

    def watch_memory(self, worker: Worker) -> None:
        """Let RDMA that lands in the worker's caches bump its block versions."""
        self.memory_map.add(worker)

    def engine_failed(self, engine: Engine, error: BaseException) -> None:
        """Keep the exception that ended an engine, for the report."""
        self.engine_errors.append((engine, error))

    def _run_side_program(self, program: SideProgram) -> None:
        parent: GuestProcess = program.parent.resources["guest"]
        parent.importer.run_script(program.script)

    def _silence_guests(self) -> None:
        for guest in self._guests:
            guest.importer.silence_finalizers()

    def _forget_guests(self) -> None:
        for guest in self._guests:
            guest.importer.close()
        # It remembers the guests' classes, and through them the whole world.
        func_utils._supports_kw.cache_clear()
