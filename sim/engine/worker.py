"""What vLLM's executors call a worker: one rank, its device, its caches and its connector half.

The methods are those that EngineCore and the executors invoke by name on a real Worker, in the
same order at start-up: specs, layout, memory, connector, caches, hooks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.kv_transfer import (
    ensure_kv_transfer_initialized,
    get_kv_transfer_group,
    has_kv_transfer_group,
)
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

from sim.device import Stream
from sim.engine.batch import Batch
from sim.engine.device_tensor import DeviceTensor
from sim.engine.device_writes import DeviceWrite, delay_ns
from sim.engine.forward import SyntheticModel
from sim.engine.forward_context import ForwardContexts
from sim.engine.hooks import make_hooks
from sim.engine.memory import RankMemory
from sim.engine.runner import ModelRunner, SampledLater
from sim.guest.process import GuestProcess
from sim.model.caches import KVCaches

if TYPE_CHECKING:
    from sim.engine.engine import Engine

_PLENTY_OF_MEMORY = 1 << 44  # the number of blocks is an option, not a result of profiling


class Worker:
    """One tensor-parallel rank of a simulated engine."""

    def __init__(
        self, engine: Engine, guest: GuestProcess, vllm_config: VllmConfig, rank: int
    ) -> None:
        self.engine = engine
        self.guest = guest
        self.vllm_config = vllm_config
        self.rank = rank
        self.stream = Stream(engine.kernel, guest.process, f"{guest.process.path}/stream")
        guest.process.resources["stream"] = self.stream
        guest.process.resources["device"] = rank, engine.options.tp_size
        self.memory: RankMemory | None = None
        self.runner: ModelRunner | None = None

    # ------------------------------------------------------------- start-up

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        return self.engine.layer_specs(self.vllm_config)

    def get_supported_kv_cache_layouts(self) -> list[str]:
        return list(self.engine.preset.supported_layouts)

    def set_kv_cache_layout(self, layout_name: str, cp_kv_cache_interleave_size: int) -> None:
        self.vllm_config.cache_config.kv_cache_layout = layout_name

    def determine_available_memory(self) -> int:
        return _PLENTY_OF_MEMORY

    def update_max_model_len(self, max_model_len: int) -> None:
        self.vllm_config.model_config.max_model_len = max_model_len

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Connector first, caches second, then the hooks register the caches with it."""
        config = kv_cache_configs[self.rank]
        cache_config = self.vllm_config.cache_config
        cache_config.num_gpu_blocks = config.num_blocks
        cache_config.hash_block_size = config.hash_block_size
        cache_config.cache_hit_alignment_tokens = config.cache_hit_alignment_tokens
        with set_current_vllm_config(self.vllm_config):
            ensure_kv_transfer_initialized(self.vllm_config, config)
            caches = KVCaches.allocate(
                config, str(cache_config.kv_cache_layout), self.engine.world.arena
            )
            self._declare_as_device_memory(caches)
            self.memory = RankMemory(caches, config.num_blocks)
            self.engine.watch_memory(self)
            views = {
                name: DeviceTensor.on(self.stream, view, self._connector_wrote)
                for name, view in caches.views.items()
            }
            kind = self.engine.options.model_runner
            hooks = make_hooks(kind, self.guest, self.vllm_config, views)
        contexts = ForwardContexts(self.stream, config, views, self.engine.drafter_layers)
        self.vllm_config.compilation_config.static_forward_context = contexts.no_compile_layers
        model = SyntheticModel(self.engine, self.rank, config, self.memory)
        self.runner = ModelRunner(
            self.engine.kernel,
            self.vllm_config,
            model,
            self.stream,
            hooks,
            contexts,
            self.engine.pass_times(),
            self.engine.gate_of_pass,
            self.engine.peers_of_rank(self.rank),
            self._delay_ns,
            partial(self.engine.reports.connector_reported, self.rank),
            self.engine.world.owners.scheduled,
            self.engine.world.hand_offs.scheduled,
        )

    def _delay_ns(self, operation: str, batch: Batch) -> int:
        """How much longer than usual the device takes for what it writes after sampling."""
        legs = tuple(chunk.state.request_id for chunk in batch.chunks)
        write = DeviceWrite(self.engine.name, self.rank, operation, legs)
        return delay_ns(self.engine.world.device_verdicts, write)

    def _connector_wrote(self, addresses: Any, sizes: Any) -> None:
        """The connector changed pieces of a cache tensor itself."""
        memory, engine = self.memory, self.engine
        assert memory is not None
        touched = memory.caches.footprint().touched(
            addresses - memory.caches.backing.data_ptr(), sizes
        )
        memory.landed(
            touched.blocks,
            engine.kernel.now_ns,
            lambda: f"the connector of {engine.name} itself",
        )

    def _declare_as_device_memory(self, caches: KVCaches) -> None:
        """The caches are CPU tensors that stand for memory of the rank's GPU."""
        backing, gpus = caches.backing, self.engine.world.fabric.gpus
        gpus.export(
            self.guest.process, self.rank, backing.data_ptr(), backing.nbytes, keep_alive=backing
        )

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def get_kv_connector_handshake_metadata(self) -> dict[tuple[int, int], Any] | None:
        if not has_kv_transfer_group():
            return None
        metadata = get_kv_transfer_group().get_handshake_metadata()
        return None if metadata is None else {(0, self.rank): metadata}

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    # ------------------------------------------------------------- each step

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        assert self.runner is not None
        return self.runner.execute_model(scheduler_output)

    def execute_dummy_batch(self) -> None:
        """A forward pass that only takes part in what the data-parallel ranks do together."""
        assert self.runner is not None
        self.runner.launch_dummy_forward()

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> SampledLater | None:
        assert self.runner is not None
        return self.runner.sample_tokens()

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        assert self.runner is not None
        return self.runner.draft_token_ids

    def shutdown(self) -> None:
        if has_kv_transfer_group():
            get_kv_transfer_group().shutdown()
