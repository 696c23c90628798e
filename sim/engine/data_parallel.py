"""Data-parallel ranks of an instance: what each is configured as, and what ties them together.

As in vLLM, every rank is an engine of its own, with a scheduler and workers. Ranks of a dense
model are independent of each other. Those of a mixture of experts exchange tokens in every layer,
so they run in lock-step: a forward pass waits for all ranks, one without work of its own joins
with a dummy, and the ranks agree about when to stop. The decisions are vLLM's own
(``DPEngineCoreProc``); here is what it needs around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vllm.config import VllmConfig
from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequestType

from sim.device import Gate
from sim.engine.options import rank_names
from sim.kernel import Kernel, Mailbox
from sim.units import US

if TYPE_CHECKING:
    from sim.engine.engine import Engine

_LATENCY_NS = 50 * US  # a message between the ranks' hosts, or with the coordinator
_PASSES_IN_FLIGHT = 8  # more than any rank is ahead of another


def configure_rank(config: VllmConfig, rank: int) -> None:
    """What ``EngineCoreProc.run_engine_core`` does to the configuration of one rank of several."""
    parallel = config.parallel_config
    parallel.data_parallel_rank_local = parallel.data_parallel_index = rank
    transfer = config.kv_transfer_config
    if transfer is not None:
        transfer.engine_id = f"{transfer.engine_id}_dp{rank}"
    if needs_lockstep(config, parallel.data_parallel_size):
        parallel.data_parallel_rank = rank
    else:
        parallel.reconfigure_for_independent_dp_rank()


def needs_lockstep(config: VllmConfig, data_parallel_size: int) -> bool:
    """Whether ranks exchange tokens, so that vLLM runs them with ``DPEngineCoreProc``."""
    return data_parallel_size > 1 and config.model_config.is_moe


@dataclass(frozen=True)
class _Work:
    """What a point-to-point call of a process group returns."""

    wait_for: Callable[[], None]

    def wait(self, timeout: timedelta) -> None:
        """Block until the message has come; ``timeout`` is vLLM's none."""
        self.wait_for()


class HostGroup:
    """One rank's end of a process group of hosts, as vLLM's small all-reduce uses it."""

    def __init__(
        self, kernel: Kernel, rank: int, size: int, boxes: dict[Any, Mailbox[Any]]
    ) -> None:
        self._kernel = kernel
        self._rank = rank
        self._size = size
        self._boxes = boxes

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def send(self, tensors: list[Any], peer: int, tag: int) -> _Work:
        box = self._box(self._rank, peer, tag)
        self._kernel.call_later(_LATENCY_NS, box.put, tensors[0].clone())
        return _Work(lambda: None)

    def recv(self, tensors: list[Any], peer: int, tag: int) -> _Work:
        box = self._box(peer, self._rank, tag)
        return _Work(lambda: tensors[0].copy_(box.get()))

    def _box(self, source: int, target: int, tag: int) -> Mailbox[Any]:
        key = (source, target, tag)
        if key not in self._boxes:
            what = f"data-parallel rank {source}"
            self._boxes[key] = Mailbox(self._kernel, what)
        return self._boxes[key]


@dataclass(eq=False)
class _Lockstep:
    """What the ranks of one incarnation of a mixture of experts share."""

    boxes: dict[tuple[str, int], dict[Any, Mailbox[Any]]] = field(default_factory=dict)
    gates: dict[int, Gate] = field(default_factory=dict)
    wave: int = 0
    is_running: bool = False


class DataParallelGroup:
    """The ranks of one instance."""

    def __init__(self, kernel: Kernel, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.ranks: list[Engine] = []
        self._kernel = kernel
        self._locksteps: dict[int, _Lockstep] = {}

    def name_of(self, rank: int) -> str:
        """The engine's name; that of the instance if it is the only one."""
        return rank_names(self.name, self.size)[rank]

    def others(self, engine: Engine) -> list[Engine]:
        """The other ranks of the instance."""
        return [other for other in self.ranks if other is not engine]

    # ----------------------------------------------------------- lock-step

    def host_group(self, engine: Engine, purpose: str) -> HostGroup:
        """For all ranks that give the same ``purpose``, and no others."""
        boxes = self._lockstep(engine).boxes.setdefault((purpose, self.size), {})
        return HostGroup(self._kernel, engine.data_parallel_rank, self.size, boxes)

    def gate(self, engine: Engine, number: int, count: int) -> Gate:
        """Where all ``count`` devices of the instance meet for their ``number``-th pass."""
        gates = self._lockstep(engine).gates
        if number not in gates:
            gates[number] = Gate(count)
            gates.pop(number - _PASSES_IN_FLIGHT, None)
        return gates[number]

    def coordinate(self, engine: Engine, outputs: EngineCoreOutputs) -> None:
        """What vLLM's coordinator does with a rank's word that a wave begins or is over."""
        state = self._lockstep(engine)
        wave = outputs.wave_complete
        if wave is not None and state.wave <= wave:
            state.wave, state.is_running = wave + 1, False
        wave = outputs.start_wave
        if wave is None or wave < state.wave or (wave == state.wave and state.is_running):
            return
        state.wave, state.is_running = wave, True
        for rank in self.ranks:
            if rank.alive:
                message = (wave, engine.data_parallel_rank)
                rank.send(EngineCoreRequestType.START_DP_WAVE, message)

    def _lockstep(self, engine: Engine) -> _Lockstep:
        return self._locksteps.setdefault(engine.incarnation, _Lockstep())
