"""A program: one request from a prefill to a decode engine, all four halves of the connector
loaded by vLLM's own factory, on real sockets and threads.

vLLM is as installed: its configuration, cache planning, schedulers and factory. Absent hardware is
stood in for: the library mori (`in_memory/mori`) and events of a GPU. ``main`` prints one JSON
object.

    python vllm_halves.py MODEL PROMPT_TOKENS LOAD_MODE
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "in_memory"))
sys.path.insert(1, str(Path(__file__).parents[1] / "unit"))

import torch
from kv_planning import plan_specs

from sim.model.arena import Arena
from sim.model.caches import KVCaches
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

HOST = "127.0.0.1"
PATIENCE_S = 30


class DeviceEvent:
    """On a device that is always done."""

    def record(self) -> None: ...

    def query(self) -> bool:
        return True


class DeviceStream:
    """Likewise."""

    def synchronize(self) -> None: ...


@dataclass
class Side:
    """One engine: vLLM's scheduler with its half, and a rank with the other."""

    scheduler: Scheduler
    worker: Any
    caches: KVCaches
    block_hasher: Any

    def add(self, request_id: str, prompt: list[int], max_tokens: int, params: Any) -> None:
        sampling = SamplingParams(
            max_tokens=max_tokens, extra_args={"kv_transfer_params": params}, ignore_eos=True
        )
        request = Request(  # its own list, as in another process: a producer takes a token off
            request_id, list(prompt), sampling, pooling_params=None, block_hasher=self.block_hasher
        )
        self.scheduler.add_request(request)

    def step(self, request_id: str = "") -> tuple[list[list[int]], list[Any]]:
        """One step with every hook in vLLM's order; returns a request's blocks and the outputs."""
        scheduled = self.scheduler.schedule()
        self.worker.handle_preemptions(scheduled.kv_connector_metadata)
        self.worker.bind_connector_metadata(scheduled.kv_connector_metadata)
        self.worker.start_load_kv(None)
        self.worker.wait_for_save()
        blocks = self._blocks_of(request_id) if request_id in self.scheduler.requests else []
        results = self.worker.get_transfer_results(scheduled.finished_req_ids)
        reported = KVConnectorOutput(
            finished_sending=results.finished_sending,
            finished_recving=results.finished_recving,
            failed_recving=results.failed_recving,
            invalid_block_ids=self.worker.get_block_ids_with_load_errors(),
            kv_connector_stats=self.worker.get_kv_connector_stats(),
        )
        self.worker.clear_connector_metadata()
        names = list(scheduled.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[7] if self._samples(name) else [] for name in names],
            kv_connector_output=reported,
        )
        by_client = self.scheduler.update_from_output(scheduled, output)
        return blocks, [item for outputs in by_client.values() for item in outputs.outputs]

    def _blocks_of(self, request_id: str) -> list[list[int]]:
        return [list(ids) for ids in self.scheduler.kv_cache_manager.get_block_ids(request_id)]

    def _samples(self, name: str) -> bool:
        request = self.scheduler.requests[name]
        return bool(request.num_computed_tokens >= request.num_tokens)

    @property
    def free_blocks(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def make_side(model: str, role: str, load_mode: str, num_tokens: int, arena: Arena) -> Side:
    preset = get_preset(model)
    drafts = Speculation(method="mtp", num_speculative_tokens=1)
    speculation = drafts if "glm" in model else None
    config = build_vllm_config(
        preset,
        num_blocks=200,
        max_model_len=num_tokens + 4 * preset.tokens_per_block(1, "reduced", 1),
        async_scheduling=False,
        connector={
            "kv_connector": "HybridReadConnector",
            "kv_connector_module_path": "connector",
            "kv_connector_extra_config": {
                "host_ip": HOST,
                "handshake_port": free_port(),
                "notify_port": free_port(),
                "load_mode": load_mode,
            },
        },
        kv_role=role,
        engine_id=role,
        speculation=speculation,
    )
    specs = [preset.cache_specs(1, "reduced", config)]
    (of_worker,), of_scheduler, layout = plan_specs(config, specs, list(preset.supported_layouts))
    with set_current_vllm_config(config):
        scheduler = Scheduler(
            config,
            of_scheduler,
            StructuredOutputManager(config),
            config.cache_config.block_size,
            hash_block_size=of_scheduler.hash_block_size or config.cache_config.block_size,
        )
        worker = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, of_worker)
        caches = KVCaches.allocate(of_worker, layout.name, arena)
        worker.register_kv_caches(dict(caches.views))
    hasher = get_request_block_hasher(scheduler.hash_block_size, sha256)
    return Side(scheduler, worker, caches, hasher)


def free_port() -> int:
    with contextlib.closing(socket.create_server((HOST, 0))) as raw:
        return int(raw.getsockname()[1])


def enter_groups(config_of: Any) -> None:
    """vLLM's own, of one rank."""
    with set_current_vllm_config(config_of):
        address = f"tcp://{HOST}:{free_port()}"
        init_distributed_environment(1, 0, address, 0, backend="gloo")
        initialize_model_parallel()


def transfer(model: str, num_tokens: int, load_mode: str) -> dict[str, Any]:
    """Prefill, hand over, load, decode, release; returns what was seen."""
    arena = Arena()
    producer = make_side(model, "kv_producer", load_mode, num_tokens, arena)
    consumer = make_side(model, "kv_consumer", load_mode, num_tokens, arena)
    idle = producer.free_blocks, consumer.free_blocks
    prompt = list(range(1, num_tokens + 1))
    numbers = torch.Generator().manual_seed(1)
    backing = producer.caches.backing
    backing.copy_(torch.randint(-128, 127, backing.shape, dtype=torch.int8, generator=numbers))

    producer.add("req-p", prompt, 1, {"do_remote_decode": True, "transfer_id": "tx-1"})
    sources: list[list[int]] = []
    prefilled = None
    while prefilled is None:
        sources, produced = producer.step("req-p")
        prefilled = produced[0] if produced else None
    held = idle[0] - producer.free_blocks

    params = {**prefilled.kv_transfer_params, "transfer_id": "tx-1", "do_remote_prefill": True}
    consumer.add("req-d", prompt, 2, params)
    outputs: list[Any] = []
    targets: list[list[int]] = []
    begin = time.monotonic()
    while not outputs or outputs[-1].finish_reason is None:
        assert time.monotonic() - begin < PATIENCE_S, "the request does not end"
        blocks, produced = consumer.step("req-d")
        targets = targets or blocks
        outputs += produced
    while producer.free_blocks != idle[0]:
        assert time.monotonic() - begin < PATIENCE_S, "the producer's blocks are not released"
        producer.step()
    result = {
        "classes": [type(s.worker).__name__ for s in (producer, consumer)]
        + [type(s.scheduler.connector).__name__ for s in (producer, consumer)],
        "module": type(producer.worker).__module__,
        "reason": str(outputs[-1].finish_reason),
        "tokens": sum(len(output.new_token_ids) for output in outputs),
        "payload": params["remote_block_ids"],
        "sources": sources,
        "targets": targets,
        "held": held,
        "free": consumer.free_blocks == idle[1],
        "same_bytes": same_bytes(producer, consumer, sources, targets),
    }
    for side in (producer, consumer):
        side.worker.shutdown()
    return result


def same_bytes(
    producer: Side, consumer: Side, sources: list[list[int]], targets: list[list[int]]
) -> dict[str, bool]:
    """For each layer, whether the first block that both have at one position holds the same."""
    found = {}
    for group, ours, theirs in zip(
        consumer.caches.config.kv_cache_groups, targets, sources, strict=True
    ):
        to, source = next(pair for pair in zip(ours, theirs, strict=True) if all(pair))
        for layer in group.layer_names:
            mine, other = consumer.caches.views[layer][to], producer.caches.views[layer][source]
            found[layer] = bool(torch.equal(mine.view(torch.uint8), other.view(torch.uint8)))
    return found


def main() -> None:
    model, num_tokens, load_mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    cuda: Any = torch.cuda
    cuda.Event, cuda.current_stream = DeviceEvent, DeviceStream
    init_none_hash(sha256)
    enter_groups(build_vllm_config(get_preset("llama"), num_blocks=9))
    print(json.dumps(transfer(model, num_tokens, load_mode)))


if __name__ == "__main__":
    main()
