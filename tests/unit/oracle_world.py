"""A small world for oracles: a clock that tests set, and two engines that have real bytes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.fabric.memory import MemoryRegion, copy_segments
from sim.fabric.work import Landing, Operation
from sim.kernel import EventLog
from sim.model.footprint import Footprint, LayerView
from sim.oracles import ORACLES, BlockHistory, Findings, Oracle, OracleContext, RunFacts, Violation
from sim.probes import Probe
from sim.units import SECOND

BLOCK_BYTES = 8
NUM_BLOCKS = 32
LAYERS = ("layers.0", "layers.1")
LAYER_BYTES = NUM_BLOCKS * BLOCK_BYTES


class Clock:
    """Stands in for the kernel: time is what the test says."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.log = EventLog()

    def record(self, kind: str, **fields: Any) -> None:
        self.log.append(self.now_ns, "test", kind, fields)


class Engine:
    """What oracles look at of an engine; its pool and scheduler are for tests to change."""

    def __init__(self, name: str, tp_size: int = 1) -> None:
        self.name = name
        self.alive = True
        self.in_lockstep = False
        self.num_blocks = NUM_BLOCKS
        self.options = SimpleNamespace(tp_size=tp_size)
        self.preset = SimpleNamespace(cache_dtype="auto")
        self.connector = SimpleNamespace(kind=SimpleNamespace(expects_what_it_logs=True))
        self.pool = SimpleNamespace(
            num_gpu_blocks=NUM_BLOCKS,
            blocks=[SimpleNamespace(ref_cnt=0) for _ in range(NUM_BLOCKS)],
            get_num_free_blocks=lambda: sum(b.ref_cnt == 0 for b in self.pool.blocks[1:]),
        )
        self.tables: dict[str, list[int]] = {}
        self.scheduler = SimpleNamespace(
            requests={},
            running=[],
            kv_holding_waiting=[],
            finished_recving_kv_req_ids=set(),
            kv_cache_manager=SimpleNamespace(
                block_pool=self.pool, get_block_ids=lambda name: (self.tables.get(name, []),)
            ),
            has_unfinished_requests=lambda: any(
                not request.is_finished() for request in self.scheduler.requests.values()
            ),
        )
        self.set_layout(block_size=4)
        self.loop = SimpleNamespace(scheduler=self.scheduler)
        self.workers = [Worker(self, rank) for rank in range(tp_size)]

    def set_layout(self, *, block_size: int = 4, layers: Sequence[str] = LAYERS) -> None:
        """What its caches look like; oracles ask when the engine starts."""
        spec = SimpleNamespace(block_size=block_size, page_size_bytes=block_size * 2)
        group = SimpleNamespace(layer_names=list(layers), kv_cache_spec=spec)
        self.scheduler.kv_cache_config = SimpleNamespace(kv_cache_groups=[group])

    def set_groups(self, *groups: Sequence[str]) -> None:
        """Of layers, that overlay each other in the same blocks."""
        named = [SimpleNamespace(layer_names=list(layers)) for layers in groups]
        for worker in self.workers:
            worker.memory.caches.config = SimpleNamespace(kv_cache_groups=named)

    def add_request(self, request_id: str, *, finished: bool) -> SimpleNamespace:
        request = SimpleNamespace(request_id=request_id, is_finished=lambda: finished)
        self.scheduler.requests[request_id] = request
        return request


class Worker:
    """One rank: a buffer of bytes with two layers in it, and its count of writes."""

    def __init__(self, engine: Engine, rank: int) -> None:
        self.engine = engine
        self.rank = rank
        self.bytes = np.zeros(len(LAYERS) * LAYER_BYTES, dtype=np.uint8)
        self.memory = SimpleNamespace(
            versions=np.zeros(NUM_BLOCKS, dtype=np.int64),
            caches=SimpleNamespace(
                config=engine.scheduler.kv_cache_config,
                footprint=lambda: FOOTPRINT,
                backing=SimpleNamespace(numpy=lambda: self.bytes),
            ),
        )
        self.region = MemoryRegion(
            self.bytes.ctypes.data, len(self.bytes), key=0, owner="", node=engine.name
        )

    def write(self, blocks: Sequence[int], value: int) -> None:
        """A forward pass fills blocks, in all layers."""
        for start in _offsets(blocks, range(len(LAYERS))).tolist():
            self.bytes[start : start + BLOCK_BYTES] = value
        self.memory.versions[np.array(blocks)] += 1


class OracleWorld:
    """One oracle (or several) over a producer ``p0`` and a consumer ``d0``."""

    def __init__(self, *names: str, tp_size: int = 1, **parameters: Any) -> None:
        self.clock = Clock()
        self.findings = Findings(self.clock)
        self.p0, self.d0 = Engine("p0", tp_size), Engine("d0", tp_size)
        self._workers = [*self.p0.workers, *self.d0.workers]
        self.blocks = BlockHistory(self.clock, self._locate)
        context = OracleContext(
            kernel=self.clock,  # type: ignore[arg-type]
            findings=self.findings,
            blocks=self.blocks,
            expected_tokens=lambda request_id, n: list(range(100, 100 + n)),
            requested_tokens=lambda request_id: 4,
        )
        self.oracles = [_make(ORACLES[name], context, parameters) for name in names]
        self.probes: list[Probe] = [self.blocks, *self.oracles]
        for engine in (self.p0, self.d0):
            self.tell("engine_started", engine)

    @property
    def violations(self) -> list[Violation]:
        return self.findings.violations

    def at(self, time_s: float) -> OracleWorld:
        """It is ``time_s`` now."""
        self.clock.now_ns = round(time_s * SECOND)
        return self

    def tell(self, event: str, *args: Any, **kwargs: Any) -> None:
        for probe in self.probes:
            getattr(probe, event)(*args, **kwargs)

    def hold(self, engine: Engine, request_id: str, blocks: Sequence[int]) -> None:
        for block in blocks:
            engine.pool.blocks[block].ref_cnt += 1
        engine.tables[request_id] = [*engine.tables.get(request_id, []), *blocks]
        self.tell("blocks_held", engine.name, request_id, 0, list(blocks))

    def free(self, engine: Engine, request_id: str, blocks: Sequence[int]) -> None:
        for block in blocks:
            engine.pool.blocks[block].ref_cnt -= 1
        engine.tables.pop(request_id, None)
        self.tell("blocks_freed", engine.name, request_id)

    def transfer(
        self,
        source: Sequence[int],
        destination: Sequence[int],
        *,
        posted_s: float | None = None,
        layers: Sequence[int] = (0, 1),
        operation: Operation = Operation.READ,
        into: Worker | None = None,
        merged: bool = False,
        rank: int = 0,
    ) -> None:
        """Bytes of p0 land in d0, now: block by block, or ``merged`` from the first block on."""
        here, there = self.p0.workers[rank], into or self.d0.workers[rank]
        posted_ns = self.clock.now_ns if posted_s is None else round(posted_s * SECOND)
        count = len(source) if merged else 1
        begin, to = _offsets(source[::count], layers), _offsets(destination[::count], layers)
        sizes = np.full(len(begin), BLOCK_BYTES * count)
        ends = ("d0", "p0") if operation is Operation.READ else ("p0", "d0")
        landing = Landing(
            *ends, operation, here.region, begin, there.region, to, sizes, posted_ns, 77, 1
        )
        self.tell("before_landing", landing)
        copy_segments(here.bytes, begin, there.bytes, to, sizes)
        there.memory.versions[np.unique(np.array(destination))] += 1
        self.tell("after_landing", landing)

    def read(self, request_id: str, blocks: Sequence[int], rank: int = 0, group: int = 0) -> None:
        """A forward pass on d0 attends to blocks."""
        self.tell("blocks_read", "d0", rank, request_id, group, np.array(blocks))

    def chain(self, destination: Sequence[int]) -> Any:
        """Work requests of d0 that fill blocks there, for ``transfer_posted`` and so on."""
        begin = _offsets(destination, (0, 1))
        segments = SimpleNamespace(local_offsets=begin, sizes=np.full(len(begin), BLOCK_BYTES))
        return Chain(self.d0.workers[0].region, segments)

    def finish(self) -> None:
        for oracle in self.oracles:
            oracle.finish(RunFacts(engines=[self.p0, self.d0]))

    def _locate(self, region: MemoryRegion, offsets: Any, sizes: Any) -> Any:
        worker = next(worker for worker in self._workers if worker.region is region)
        return worker, FOOTPRINT.touched(offsets, sizes)


class Chain:
    """What oracles look at of a chain of work requests."""

    signaled = True

    def __init__(self, local: MemoryRegion, segments: Any) -> None:
        self.local = local
        self.segments = segments


def _make(oracle: type[Oracle], context: OracleContext, parameters: Any) -> Oracle:
    return oracle(context, oracle.Parameters(**parameters))


def _offsets(blocks: Sequence[int], layers: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where the blocks begin, layer by layer."""
    starts = np.array(layers)[:, None] * LAYER_BYTES + np.array(blocks) * BLOCK_BYTES
    return starts.reshape(-1)


FOOTPRINT = Footprint(
    {
        name: LayerView(
            index * LAYER_BYTES, (NUM_BLOCKS, 1, 1, BLOCK_BYTES), (BLOCK_BYTES, 8, 8, 1)
        )
        for index, name in enumerate(LAYERS)
    }
)
