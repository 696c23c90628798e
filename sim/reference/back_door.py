"""A back door to the caches of all engines, as no real machine has one.

A producer's scheduler leaves a copy of a request's blocks here when the request has ended, and a
consumer's worker takes from it. Nothing is sent, so nothing can be lost, and what the producer
does with its blocks afterwards, or whether it is still there, does not matter. A copy has a number
that is never used again; it is thrown away when the client has its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.guest.facades.proxy import Facade
from sim.kernel import Kernel
from sim.probes import Probe
from sim.request_ids import logical_id

if TYPE_CHECKING:
    from sim.engine.engine import Engine
    from sim.engine.worker import Worker

NULL_BLOCK = 0
Placement = Sequence[tuple[int, int]]
"""Places in a block table, and the block that is to have the content of each."""


@dataclass(frozen=True)
class _Group:
    """The blocks of one cache group on one rank: rows of ``layers``, by place in the table."""

    rows: dict[int, int]
    layers: dict[str, Any]


@dataclass(frozen=True)
class _Copy:
    request: str
    """The logical request."""
    ranks: list[list[_Group]]


class BackDoor(Probe):
    """What is kept between the two legs of every request."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._engines: dict[str, Engine] = {}
        self._copies: dict[int, _Copy] = {}
        self._numbers = count(1)

    def facade(self) -> ModuleType:
        """The module ``back_door`` of guests."""
        members = {"keep": self.keep, "can_load": self.can_load, "load": self.load}
        return Facade(self._kernel, "back_door", members)

    def engine_started(self, engine: Engine) -> None:
        self._engines[engine.name] = engine

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self._copies = {n: c for n, c in self._copies.items() if c.request != request_id}

    # ------------------------------------------------------------ for guests

    def keep(self, request_id: str, block_ids: Sequence[Sequence[int]]) -> int:
        """Copy blocks of the calling scheduler's engine, one block table a cache group.

        Blocks until the devices have nothing to do: a drafter still writes to the blocks of a
        request when its last token is out.

        Returns:
            The number of the copy.
        """
        workers = sorted(self._engine().workers, key=lambda worker: worker.rank)
        for worker in workers:
            worker.stream.synchronize()
        number = next(self._numbers)
        self._copies[number] = _Copy(
            logical_id(request_id), [_copy_of(worker, block_ids) for worker in workers]
        )
        return number

    def can_load(self, number: int) -> bool:
        """Whether the copy is there, and has a part for each rank of the caller's engine."""
        copy = self._copies.get(number)
        return copy is not None and len(copy.ranks) == self._engine().options.tp_size

    def load(self, number: int, placements: Sequence[Placement]) -> bool:
        """Write to the calling rank's caches, one placement a cache group.

        Returns:
            False if there is no such copy any more; then nothing was written.

        Raises:
            KeyError: the copy has no block for a place.
        """
        worker = self._worker()
        copy = self._copies.get(number)
        if copy is None:
            return False
        for group, placement in zip(copy.ranks[worker.rank], placements, strict=True):
            if placement:
                _write(worker, group, placement, f"the copy kept for {copy.request}")
        return True

    # -------------------------------------------------------------- internal

    def _engine(self) -> Engine:
        """The engine of the calling process."""
        self._kernel.checkpoint()
        process = self._kernel.require_task("back_door").process
        engines = self._engines.values()
        return next(e for e in engines if any(guest.process is process for guest in e.processes))

    def _worker(self) -> Worker:
        """The rank that the calling process runs."""
        workers = self._engine().workers
        process = self._kernel.require_task("back_door").process
        return next(worker for worker in workers if worker.guest.process is process)


def _copy_of(worker: Worker, block_ids: Sequence[Sequence[int]]) -> list[_Group]:
    assert worker.memory is not None
    caches = worker.memory.caches
    groups = []
    for group, table in zip(caches.config.kv_cache_groups, block_ids, strict=True):
        places = [place for place, block in enumerate(table) if block != NULL_BLOCK]
        blocks = [table[place] for place in places]
        layers = {layer: caches.views[layer][blocks] for layer in group.layer_names}
        groups.append(_Group({place: row for row, place in enumerate(places)}, layers))
    return groups


def _write(worker: Worker, group: _Group, placement: Placement, what: str) -> None:
    assert worker.memory is not None
    rows = [group.rows[place] for place, _ in placement]
    blocks = [block for _, block in placement]
    for layer, content in group.layers.items():
        worker.memory.caches.views[layer][blocks] = content[rows]
    worker.memory.wrote(np.array(blocks), worker.engine.kernel.now_ns, lambda: what)
