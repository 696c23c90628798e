"""What all KV cache groups that hold an entry for each token have in common on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.engine.batch import TARGET, BlockTable, Chunk, WrongContent
from sim.engine.memory import RankMemory
from sim.engine.wrong_bytes import WrongBytesReporter
from sim.model.content import EntrySalts

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class EntryGroup:
    """Layers of one group.

    Args:
        index: of the group, which is the place of its table in a request's block tables.
        layers: the salts of what each layer keeps of a token.
    """

    reader = TARGET
    what = "forward pass"

    def __init__(
        self,
        engine: Engine,
        rank: int,
        index: int,
        layers: dict[str, EntrySalts],
        memory: RankMemory,
    ) -> None:
        self.index = index
        self._engine = engine
        self._layers = layers
        self._slots = {layer: memory.caches.slots(layer) for layer in layers}
        self._memory = memory
        self._reporter = WrongBytesReporter(engine, rank, memory)
        self._check_everything = engine.world.check == "full"

    def _table(self, chunk: Chunk) -> BlockTable:
        return chunk.state.tables[self.index]

    def _wrong(self, chunk: Chunk) -> WrongContent:
        return chunk.state.wrong

    def _wrote(self, chunk: Chunk, places: slice, verified: slice) -> None:
        """The request wrote to the blocks at ``places`` of its table, and made those of them at
        ``verified`` right; the others stay as right as they were."""
        table = self._table(chunk)
        ids = table.ids[places]
        was_seen = table.seen[:, places] == self._memory.versions[ids]
        was_seen[self.reader, verified] = True
        request_id, node = chunk.state.request_id, self._engine.name
        self._memory.wrote(
            ids,
            self._engine.kernel.now_ns,
            lambda: f"the {self.what} of {request_id} on {node}",
        )
        np.copyto(table.seen[:, places], self._memory.versions[ids], where=was_seen)
