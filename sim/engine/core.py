"""vLLM's engine loop on a simulated process: EngineCoreProc without its sockets.

The loop, the step functions, abort handling, the scheduler and the KV cache planning are
vLLM's. What is left out is what surrounds them in a real process: the handshake with the front
end and the socket threads, whose place the engine's own queues take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import vllm.v1.engine.core as vllm_core
from vllm.config import VllmConfig
from vllm.v1.engine.core import (
    DPEngineCoreProc,
    EngineCore,
    EngineCoreProc,
    EngineShutdownState,
)

from sim.probes import StepTimes

if TYPE_CHECKING:
    from sim.engine.engine import Engine

# Housekeeping of a real process's heap: one interpreter hosts all engines here, and garbage
# collection is off during a run anyway.
vllm_core.freeze_gc_heap = lambda: None

ClientOutputs = tuple[int, Any]


class _OutputQueue:
    """Where the loop puts outputs for the front end."""

    def __init__(self, deliver: Callable[[ClientOutputs], None]) -> None:
        self.put_nowait = deliver


class EngineLoop(EngineCoreProc):
    """One engine core; ``run_busy_loop`` is vLLM's and returns only by an exception."""

    def __init__(
        self, engine: Engine, vllm_config: VllmConfig, executor_class: Callable[..., Any]
    ) -> None:
        self._engine = engine
        self._polling = engine.polling
        self.input_queue = engine.world.facades["queue"].Queue()
        self.output_queue = _OutputQueue(engine.deliver_outputs)
        self.engine_index = engine.data_parallel_rank
        self.engines_running = False
        self.shutdown_state = EngineShutdownState.RUNNING
        self.reject_new_requests = False
        self.has_coordinator = False
        self.publish_dp_lb_stats = False
        self.process_input_queue_block = True
        self.enable_fault_tolerance = False
        EngineCore.__init__(self, vllm_config, executor_class, log_stats=False)
        # Chosen by vLLM: with or without a batch queue.
        self._step: Callable[[], Any] = self.__dict__["step_fn"]
        self.step_fn = self._timed_step

    def _timed_step(self) -> Any:
        kernel = self._engine.kernel
        self._polling.looks()
        start_ns = kernel.now_ns
        outputs, model_executed = self._step()
        self._engine.reports.step_done(
            StepTimes(self._engine.name, start_ns, kernel.now_ns, model_executed)
        )
        return outputs, model_executed

    def post_step(self, model_executed: bool) -> None:
        super().post_step(model_executed)
        if not model_executed:
            self._polling.will_sleep()


class LockstepLoop(EngineLoop, DPEngineCoreProc):
    """A data-parallel rank of a mixture of experts: vLLM's loop with dummy passes and waves."""

    def __init__(
        self, engine: Engine, vllm_config: VllmConfig, executor_class: Callable[..., Any]
    ) -> None:
        self.prefill_schedule_interval = vllm_config.scheduler_config.prefill_schedule_interval
        self.dp_sync_interval = vllm_config.parallel_config.dp_sync_interval
        self.step_counter = self.current_wave = 0
        self.pending_pause = self.ignore_start_dp_wave = False
        self.eep_scaling_state = None
        self.dp_rank = engine.data_parallel_rank
        self.dp_size = engine.group.size
        self.dp_group = engine.group.host_group(engine, "engine cores")
        super().__init__(engine, vllm_config, executor_class)
        self.has_coordinator = True
