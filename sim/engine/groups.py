"""The parallel groups of an engine's ranks: who is in them, and their host-side collectives.

vLLM's accessors (get_tp_group and the like) are its own; they find these objects in the module
globals that are swapped for each process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import vllm.distributed.parallel_state as parallel_state
from simpy.events import Event

from sim.kernel import Kernel, Process

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class Rendezvous:
    """Ranks of a group bring a value each; all leave with the list of all values."""

    def __init__(self, kernel: Kernel, size: int) -> None:
        self._kernel = kernel
        self._size = size
        self._values: dict[int, Any] = {}
        self._all_here: Event = kernel.event()

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """Block until every rank has called; values in order of rank."""
        values, all_here = self._values, self._all_here
        assert rank not in values, f"rank {rank} entered a collective twice"
        values[rank] = value
        if len(values) == self._size:
            self._values, self._all_here = {}, self._kernel.event()
            all_here.succeed()
        else:
            self._kernel.wait(
                all_here, what=lambda: f"a collective, ranks {sorted(values)} of {self._size} here"
            )
        return [values[rank] for rank in range(self._size)]


class RankGroup:
    """One rank's view of a group, with the attributes and calls that connectors use."""

    def __init__(self, name: str, rank: int, size: int, rendezvous: Rendezvous) -> None:
        self.unique_name = name
        self.rank = self.local_rank = self.rank_in_group = rank
        self.world_size = size
        self.ranks = list(range(size))
        self.first_rank, self.last_rank = 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.cpu_group = self.device_group = self
        self._rendezvous = rendezvous

    def exchange(self, value: Any) -> list[Any]:
        return self._rendezvous.exchange(self.rank_in_group, value)

    def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
        return self.exchange(obj)[src]

    def barrier(self) -> None:
        self.exchange(None)

    def size(self) -> int:
        return self.world_size


def enter_groups(engine: Engine, process: Process, rank: int) -> None:
    """Put the groups of ``rank`` in place for the running process.

    Data-parallel ranks that run in lock-step are in one world, as in vLLM; independent ones know
    nothing of each other.
    """
    world, name, size = engine.world, engine.name, engine.options.tp_size
    tensor_parallel = RankGroup("tp", rank, size, world.rendezvous(name, engine, size))
    alone = RankGroup("alone", 0, 1, Rendezvous(engine.kernel, 1))
    parallel_state._WORLD = parallel_state._TP = tensor_parallel
    parallel_state._PP = parallel_state._DP = alone
    parallel_state._DCP = parallel_state._PCP = alone
    if engine.in_lockstep:
        instance, dp_rank, dp_size = engine.group.name, engine.data_parallel_rank, engine.group.size
        everybody = world.rendezvous(f"{instance}/world", engine, dp_size * size)
        peers = world.rendezvous(f"{instance}/dp{rank}", engine, dp_size)
        number = dp_rank * size + rank
        parallel_state._WORLD = RankGroup("world", number, dp_size * size, everybody)
        parallel_state._DP = RankGroup("dp", dp_rank, dp_size, peers)
    process.resources["tp group"] = tensor_parallel
