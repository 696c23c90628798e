"""One engine: vLLM's scheduler and one rank, each with its half of the connector.

vLLM is as installed: its configuration, cache planning, scheduler and connector factory, and the
hooks of a step in its order. There is no model: a forward pass is a call of ``before_forward``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hw_tests.process.launcher import free_port
from hw_tests.process.memory import CacheMemory
from hw_tests.process.messages import HOST, Blocks, SideOptions
from hw_tests.process.planning import plan_specs
from sim.model.config import build_vllm_config
from sim.model.presets import get_preset
from sim.model.speculation import Speculation

from vllm.config import set_current_vllm_config  # isort: skip  # after its variables are set
from vllm import SamplingParams
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.parallel_state import (
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager


@dataclass
class Side:
    """Runs steps; ``blocks`` are those of each request when it was last in one, ``owned`` all that
    it ever had."""

    scheduler: Scheduler
    worker: Any
    memory: CacheMemory
    block_hasher: Any
    tokens_per_block: int
    before_forward: Callable[[str], None] = lambda name: None
    blocks: dict[str, Blocks] = field(default_factory=dict)
    owned: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    counters: Counter[str] = field(default_factory=Counter)

    def add(self, request_id: str, prompt: list[int], max_tokens: int, params: Any) -> None:
        sampling = SamplingParams(
            max_tokens=max_tokens, extra_args={"kv_transfer_params": params}, ignore_eos=True
        )
        request = Request(  # its own list, as in another process: a producer takes a token off
            request_id, list(prompt), sampling, pooling_params=None, block_hasher=self.block_hasher
        )
        self.scheduler.add_request(request)

    def step(self) -> list[Any]:
        """One step with every hook in vLLM's order; returns the outputs for clients."""
        scheduled = self.scheduler.schedule()
        self.worker.handle_preemptions(scheduled.kv_connector_metadata)
        self.worker.bind_connector_metadata(scheduled.kv_connector_metadata)
        self.worker.start_load_kv(None)
        for name in self.scheduler.requests:
            groups = self.scheduler.kv_cache_manager.get_block_ids(name)
            if any(groups):
                self.blocks[name] = [list(ids) for ids in groups]
                self.owned[name].update(block for ids in groups for block in ids)
        for name in scheduled.num_scheduled_tokens:
            self.before_forward(name)
        self.worker.wait_for_save()
        names = list(scheduled.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[7] if self._samples(name) else [] for name in names],
            kv_connector_output=self._report(scheduled.finished_req_ids),
        )
        by_client = self.scheduler.update_from_output(scheduled, output)
        return [item for outputs in by_client.values() for item in outputs.outputs]

    def _report(self, finished: set[str]) -> KVConnectorOutput:
        results = self.worker.get_transfer_results(finished)
        stats = self.worker.get_kv_connector_stats()
        if stats is not None:
            counts = {name: n for name, n in stats.data.items() if isinstance(n, int)}
            self.counters.update(counts)
        report = KVConnectorOutput(
            finished_sending=results.finished_sending,
            finished_recving=results.finished_recving,
            failed_recving=results.failed_recving,
            invalid_block_ids=self.worker.get_block_ids_with_load_errors(),
            kv_connector_stats=stats,
            kv_connector_worker_meta=self.worker.build_connector_worker_meta(),
        )
        self.worker.clear_connector_metadata()
        return report

    def _samples(self, name: str) -> bool:
        request = self.scheduler.requests[name]
        return bool(request.num_computed_tokens >= request.num_tokens)

    @property
    def free_blocks(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def make_side(options: SideOptions) -> Side:
    """Both halves, with memory registered and listening; `enter_groups` comes first."""
    preset = get_preset(options.model)
    if options.block_size is not None:
        preset = replace(preset, block_size=options.block_size)
    tokens_per_block = preset.tokens_per_block(options.tp_size, "reduced", 1)
    drafts = Speculation(method="mtp", num_speculative_tokens=1)
    config = build_vllm_config(
        preset,
        num_blocks=options.num_blocks,
        tp_size=options.tp_size,
        max_model_len=options.max_tokens + 4 * tokens_per_block,
        async_scheduling=False,
        connector={
            "kv_connector": "HybridReadConnector",
            "kv_connector_module_path": "connector",
            "kv_connector_extra_config": {"host_ip": HOST, **options.settings},
        },
        kv_role=options.role,
        engine_id=options.role,
        speculation=drafts if "glm" in options.model else None,
    )
    specs = [preset.cache_specs(options.tp_size, "reduced", config)] * options.tp_size
    workers, of_scheduler, layout = plan_specs(config, specs, list(preset.supported_layouts))
    of_worker = workers[options.rank]
    with set_current_vllm_config(config):
        scheduler = Scheduler(
            config,
            of_scheduler,
            StructuredOutputManager(config),
            config.cache_config.block_size,
            hash_block_size=of_scheduler.hash_block_size or config.cache_config.block_size,
        )
        worker = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, of_worker)
        memory = CacheMemory(of_worker, layout, options.device)
        worker.register_kv_caches(memory.views)
    hasher = get_request_block_hasher(scheduler.hash_block_size, sha256)
    return Side(scheduler, worker, memory, hasher, tokens_per_block)


def enter_groups() -> None:
    """vLLM's process groups, of one rank, and its hash of nothing; once in a process."""
    init_none_hash(sha256)
    with set_current_vllm_config(build_vllm_config(get_preset("llama"), num_blocks=9)):
        address = f"tcp://{HOST}:{free_port()}"
        init_distributed_environment(1, 0, address, 0, backend="gloo")
        initialize_model_parallel()
