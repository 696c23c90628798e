"""One vLLM engine: its processes on a node, and the verbs that others have for it.

The front end (router) adds and aborts requests and gets outputs; the testbed starts, crashes,
restarts, pauses and resumes it.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm.config import VllmConfig
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, EngineCoreRequestType

from sim.device import Gate
from sim.engine.configuration import blocks_of_longest_request, config_of
from sim.engine.core import ClientOutputs, EngineLoop, LockstepLoop
from sim.engine.data_parallel import DataParallelGroup, HostGroup, needs_lockstep
from sim.engine.executors import MultiProcessExecutor, SingleProcessExecutor
from sim.engine.groups import enter_groups
from sim.engine.options import EngineOptions, pass_times_of
from sim.engine.reports import EngineReports
from sim.engine.roofline import PassTimes
from sim.guest.process import GuestProcess
from sim.kernel import Kernel, Mailbox, Node, PollingLoop, Process, ProcessState
from sim.kernel.frames import described, raised_at, traceback_of
from sim.model.presets import Geometry, ModelPreset
from sim.request_ids import leg_of
from sim.units import US

if TYPE_CHECKING:
    from sim.engine.connectors import ConnectorSetup, SideChannel
    from sim.engine.worker import Worker
    from sim.world import World

_FRONT_END_LATENCY_NS = 100 * US
_RANK_DEATH_NOTICED_NS = 1_000 * US
_COORDINATOR = -1  # who gets such outputs is no client
OnOutput = Callable[["Engine", EngineCoreOutput], None]


class Engine:
    """A producer, a consumer, or a colocated engine (no connector)."""

    def __init__(
        self,
        world: World,
        node: Node,
        preset: ModelPreset,
        options: EngineOptions,
        *,
        group: DataParallelGroup,
        data_parallel_rank: int,
        geometry: Geometry,
        num_blocks: int,
        max_model_len: int,
        connector: ConnectorSetup | None,
    ) -> None:
        self.world = world
        self.kernel: Kernel = world.kernel
        self.node = node
        self.group = group
        self.data_parallel_rank = data_parallel_rank
        self.name = group.name_of(data_parallel_rank)
        group.ranks.append(self)
        self.preset = preset
        self.options = options
        self.geometry = geometry
        self.num_blocks = num_blocks
        self.max_model_len = max_model_len
        self.connector = connector
        self.reports = EngineReports(self.kernel, world.probes, self.name)
        self.incarnation = 0
        self.alive = False
        self.was_crashed = False
        self.comes_back = False
        """Dead, and started again for the quiet phase: killed, or by a step that its connector had
        to end (`ConnectorKind.step_failure`)."""
        self.on_output: OnOutput | None = None
        self.loop: EngineLoop | None = None
        self.core: GuestProcess
        self.processes: list[GuestProcess] = []
        self.workers: list[Worker] = []
        self._gates: dict[int, Gate] = {}
        self._worker_error: Exception | None = None
        self._config: VllmConfig | None = None
        self.kernel.on_crash(self._process_crashed)

    # --------------------------------------------------------- life and death

    def start(self) -> None:
        """Start the engine core's process; requests may be added at once, they wait."""
        self.alive = True
        self.was_crashed = False
        self.loop = None
        self.workers = []
        self.processes = []
        self._gates = {}
        self._worker_error = None
        self._config = None
        self.ready = self.kernel.event()
        self._inbox: Mailbox[tuple[EngineCoreRequestType, Any]] = Mailbox(
            self.kernel, "a message of the front end"
        )
        self._on_the_way: deque[tuple[EngineCoreRequestType, Any]] = deque()
        self._outputs_on_the_way: deque[EngineCoreOutput] = deque()
        self.core = self._new_process("core")
        self.polling = PollingLoop(self.kernel, self.reports.steps_skipped)
        self.polling.join(self.kernel.spawn(self.core.process, self._main, name="main"))

    def crash(self) -> None:
        """All processes vanish at once, as after SIGKILL or a power failure. The front end ends
        the other data-parallel ranks of the instance, as vLLM's does."""
        self._die("crashed", injected=True)

    def restart(self) -> None:
        """A new incarnation on the same address, with new memory and an empty cache."""
        assert not self.alive, f"{self.name} is up; crash it first"
        self.incarnation += 1
        self.start()

    def crash_rank(self, rank: int) -> None:
        """One rank's process vanishes; its executor notices, and the engine ends soon after."""
        process = self.rank_process(rank)
        if process is self.core.process:
            self.crash()
            return
        self.kernel.crash(process)
        self._die_soon(f"the process of rank {rank} crashed", injected=True)

    def _process_crashed(self, process: Process) -> None:
        """One that has ended by itself takes the engine with it."""
        is_ours = any(guest.process is process for guest in self.processes)
        if is_ours and process.exit_reason is not None and self.ready.triggered:
            self._die_soon(f"{process.path} ended: {process.exit_reason}", injected=False)

    def _die_soon(self, reason: str, *, injected: bool) -> None:
        """As soon as the loss of a process is noticed, if nothing else has ended it by then."""
        incarnation = self.incarnation

        def die() -> None:
            if self.alive and self.incarnation == incarnation:
                self._die(reason, injected=injected)

        self.kernel.call_later(_RANK_DEATH_NOTICED_NS, die)

    def rank_process(self, rank: int) -> Process:
        """The process that rank number ``rank`` runs in."""
        if self.options.executor == "single-process":
            return self.core.process
        (guest,) = [g for g in self.processes if g.process.name == f"rank{rank}"]
        return guest.process

    def set_pace(self, factor: float) -> None:
        """Let everything that a step does on the device or its host take ``factor`` as long."""
        times = self.pass_times().scaled(factor)
        for worker in self.workers:
            if worker.runner is not None:
                worker.runner.times = times

    def pass_times(self) -> PassTimes:
        """How long a step takes when nothing slows it down."""
        return pass_times_of(self.options, self.preset)

    def pause(self) -> None:
        for guest in self.processes:
            self.kernel.pause(guest.process)

    def resume(self) -> None:
        for guest in self.processes:
            if guest.process.state is ProcessState.PAUSED:
                self.kernel.resume(guest.process)

    def _die(self, reason: str, *, injected: bool, traceback: Sequence[str] = ()) -> None:
        words = "" if self.connector is None else self.connector.kind.step_failure
        self.alive = False
        self.was_crashed = injected
        self.comes_back = injected or bool(words and words in reason)
        self.kernel.record(
            "engine-died",
            node=self.name,
            reason=reason,
            injected=injected,
            traceback=list(traceback),
        )
        for guest in self.processes:
            if guest.process.alive:
                self.kernel.crash(guest.process)
        self.world.probes.engine_died(self.name, reason, injected=injected, traceback=traceback)
        for other in self.group.others(self):
            if other.alive:
                other._die(f"{self.name} died", injected=injected)
                other.comes_back = self.comes_back

    def _main(self) -> None:
        try:
            config = self.vllm_config_for(self.core)
            kind = LockstepLoop if self.in_lockstep else EngineLoop
            loop = kind(self, config, self._executor_class())
            self.loop = loop
            self.reports.watch_blocks(loop.scheduler)
            self.kernel.record("engine-started", node=self.name, incarnation=self.incarnation)
            self.world.probes.engine_started(self)
            self.ready.succeed()
            self.kernel.spawn(self.core.process, self._input_loop, loop, name="input")
            loop.run_busy_loop()
        except Exception as error:
            # A real engine core logs the exception and its process ends.
            self.world.engine_failed(self, error)
            self._die_of(error)

    def _die_of(self, error: Exception) -> None:
        """A worker's exception reaches the core as text only, so its places are kept apart."""
        worker_error = self._worker_error
        reason, origin = described(error), worker_error or error
        if (at := raised_at(origin)) is not None:
            reason += f", raised at {at}"
        traceback = [*traceback_of(error)]
        if worker_error is not None:
            traceback += [f"in a worker: {described(worker_error)}", *traceback_of(worker_error)]
        self._die(reason, injected=False, traceback=traceback)

    def worker_failed(self, error: Exception) -> None:
        """A rank's process raised ``error``, of which it will send the message to the core."""
        self._worker_error = error

    # ------------------------------------------------------------- front end

    @property
    def side_channel(self) -> SideChannel | None:
        return None if self.connector is None else self.connector.side_channel

    def add_request(self, request: EngineCoreRequest) -> None:
        assert request.prompt_token_ids is not None
        self.world.hand_offs.sent(leg_of(request.request_id), request.prompt_token_ids)
        self.send(EngineCoreRequestType.ADD, request)

    def abort(self, request_ids: list[str]) -> None:
        self.send(EngineCoreRequestType.ABORT, request_ids)

    def send(self, kind: EngineCoreRequestType, message: Any) -> None:
        """A message to the engine core, which arrives a moment later."""
        # One connection keeps its order, even where simultaneous events do not keep theirs: an
        # abort must not overtake the request it is about.
        inbox, on_the_way = self._inbox, self._on_the_way
        on_the_way.append((kind, message))
        self.kernel.call_later(_FRONT_END_LATENCY_NS, lambda: inbox.put(on_the_way.popleft()))

    def _input_loop(self, loop: EngineLoop) -> None:
        """What vLLM's input thread does between the socket and the loop's queue."""
        while True:
            kind, message = self._inbox.get()
            if kind is EngineCoreRequestType.ADD:
                message = loop.preprocess_add_request(message)
            elif kind is EngineCoreRequestType.ABORT:
                loop.aborts_queue.put_nowait(message)
            loop.input_queue.put_nowait((kind, message))

    def deliver_outputs(self, item: ClientOutputs) -> None:
        """Outputs of a step reach the front end a moment later, in the order they were made."""
        client, outputs = item
        if client == _COORDINATOR:
            self.kernel.call_later(_FRONT_END_LATENCY_NS, self.group.coordinate, self, outputs)
            return
        for output in outputs.outputs:
            self.reports.drafts_verified(output)
            self._outputs_on_the_way.append(output)
            self.kernel.call_later(_FRONT_END_LATENCY_NS, self._deliver, self._outputs_on_the_way)

    def _deliver(self, on_the_way: deque[EngineCoreOutput]) -> None:
        output = on_the_way.popleft()
        if self.on_output is not None:
            self.on_output(self, output)

    # ----------------------------------------------- what processes are made of

    @property
    def drafter_layers(self) -> frozenset[str]:
        """The layers with a cache that are the drafter's; none without speculation."""
        speculation = self.options.speculation
        if speculation is None:
            return frozenset()
        return frozenset(self.preset.drafter(speculation.method).layers[self.geometry])

    def layer_specs(self, vllm_config: VllmConfig) -> dict[str, Any]:
        return self.preset.cache_specs(self.options.tp_size, self.geometry, vllm_config)

    def blocks_of_longest_request(self) -> list[int]:
        """What vLLM reserves for it in each KV cache group, once the engine has a configuration."""
        assert self._config is not None
        return blocks_of_longest_request(self, self._config)

    def start_rank_process(self, rank: int) -> GuestProcess:
        return self._new_process(f"rank{rank}")

    def enter_rank(self, guest: GuestProcess, rank: int) -> None:
        """Give the running process its place in the parallel groups."""
        enter_groups(self, guest.process, rank)

    def vllm_config_for(self, guest: GuestProcess) -> VllmConfig:
        """This process's own copy, with the connector loaded from the process's own modules."""
        if self._config is None:
            self._config = config_of(self, guest)
        config = copy.deepcopy(self._config)
        transfer = config.kv_transfer_config
        if transfer is not None and self.connector is not None:
            transfer.kv_connector_module_path = guest.alias(self.connector.module)
            self.connector.load(guest)
            self.connector.watch(transfer)
        return config

    @property
    def in_lockstep(self) -> bool:
        """Whether the data-parallel ranks of the instance run every forward pass together."""
        return self._config is not None and needs_lockstep(self._config, self.group.size)

    def peers_of_rank(self, rank: int) -> HostGroup | None:
        """The same tensor-parallel rank of all data-parallel ranks, if they work together."""
        return self.group.host_group(self, f"rank {rank}") if self.in_lockstep else None

    def gate_of_pass(self, number: int) -> Gate | None:
        """Where the ranks meet for pass number ``number`` of the model or the drafter."""
        if self.in_lockstep:
            return self.group.gate(self, number, self.group.size * self.options.tp_size)
        if self.options.tp_size == 1:
            return None
        gate = self._gates.get(number)
        if gate is None:
            gate = self._gates[number] = Gate(self.options.tp_size)
            self._gates.pop(number - 8, None)  # nobody is that far behind: two steps in flight
        return gate

    def _executor_class(self) -> Callable[..., Any]:
        if self.options.executor == "multi-process":
            return partial(MultiProcessExecutor, engine=self)
        return partial(SingleProcessExecutor, engine=self)

    def _new_process(self, name: str) -> GuestProcess:
        guest = self.world.new_guest_process(self, name)
        self.processes.append(guest)
        return guest

    def watch_memory(self, worker: Worker) -> None:
        """A worker has its caches."""
        self.workers.append(worker)
        self.world.watch_memory(worker)
