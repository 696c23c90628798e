"""vLLM's two executors with simulated workers in place of real ones.

Only the creation of workers is replaced. Calling them, waiting for them, taking snapshots
(multi-process) or not (single process), and aggregating what their connectors report is vLLM's
own code, and the difference between the two is part of what is under test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vllm.config import VllmConfig
from vllm.v1.executor.multiproc_executor import MultiprocExecutor, WorkerProc
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from sim.engine.message_queue import MessageQueue
from sim.engine.worker import Worker
from sim.guest.process import GuestProcess

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class SingleProcessExecutor(UniProcExecutor):
    """The worker lives in the engine core's process and shares its objects."""

    def __init__(self, vllm_config: VllmConfig, *, engine: Engine) -> None:
        self._engine = engine
        super().__init__(vllm_config)

    def _init_executor(self) -> None:
        engine = self._engine
        engine.enter_rank(engine.core, rank=0)
        self.driver_worker = Worker(engine, engine.core, self.vllm_config, rank=0)

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        self.collective_rpc("initialize_from_config", args=(kv_cache_configs,))


class MultiProcessExecutor(MultiprocExecutor):
    """Every rank is a process of its own; messages are snapshots, outputs are aggregated."""

    def __init__(self, vllm_config: VllmConfig, *, engine: Engine) -> None:
        self._engine = engine
        super().__init__(vllm_config, monitor_workers=False)

    def _init_executor(self) -> None:
        engine = self._engine
        kernel = engine.kernel
        self.world_size = self.local_world_size = engine.options.tp_size
        self.is_failed = False
        self.failure_callback = None
        self.shutting_down = False
        ranks = [engine.start_rank_process(rank) for rank in range(self.world_size)]
        self.rpc_broadcast_mq = MessageQueue(kernel, ranks)
        self.response_mqs = [MessageQueue(kernel, [engine.core]) for _ in ranks]
        self.futures_queue: deque[Any] = deque()
        self.output_rank = 0
        for rank, guest in enumerate(ranks):
            worker = kernel.spawn(guest.process, self._rank_main, guest, rank, name="worker")
            engine.polling.join(worker)

    def _rank_main(self, guest: GuestProcess, rank: int) -> None:
        engine = self._engine
        engine.enter_rank(guest, rank)
        vllm_config = engine.vllm_config_for(guest)
        worker = Worker(engine, guest, vllm_config, rank)
        process = _bare_worker_process(engine, worker, self.rpc_broadcast_mq, self.response_mqs)
        if process.use_async_scheduling:
            outputs = process.async_output_busy_loop
            engine.polling.join(engine.kernel.spawn(guest.process, outputs, name="outputs"))
        process.worker_busy_loop()

    def shutdown(self) -> None:
        """The processes end with the engine."""


def _bare_worker_process(
    engine: Engine, worker: Worker, requests: MessageQueue, responses: list[MessageQueue]
) -> WorkerProc:
    """vLLM's WorkerProc with its loops, without the start-up that needs a real process."""
    queue: ModuleType = engine.world.facades["queue"]
    process = WorkerProc.__new__(WorkerProc)
    process.rank = worker.rank
    process.worker = worker
    process.rpc_broadcast_mq = requests
    process.worker_response_mq = responses[worker.rank]
    process.use_async_scheduling = engine.options.async_scheduling
    process.async_output_queue = queue.Queue()
    process.enqueue_output = partial(_enqueue_output, engine, process.enqueue_output)
    return process


def _enqueue_output(engine: Engine, enqueue: Callable[[Any], None], output: Any) -> None:
    """vLLM sends only the text of an exception on; the engine keeps where it was raised."""
    if isinstance(output, Exception):
        engine.worker_failed(output)
    enqueue(output)
