"""`HybridReadConnector`, the class that vLLM loads; it passes each hook on to one of its halves."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.outputs import KVConnectorOutput

from connector.consumer_scheduler import ConsumerScheduler
from connector.core.config import check_parallelism, check_recomputation, parse_settings
from connector.core.groups import check_transferable
from connector.counters import Counters
from connector.data_parallel import address_of
from connector.logs import log
from connector.metadata import StepOrders
from connector.metrics import HybridPromMetrics, HybridStats
from connector.mori_limits import limit_waits
from connector.own_address import own_address
from connector.producer_scheduler import ProducerScheduler
from connector.vllm_specs import transfer_groups

if TYPE_CHECKING:
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.request import Request

    from connector.worker import Worker


class HybridReadConnector(KVConnectorBase_V1, SupportsHMA):
    """Reads a prompt's KV blocks and recurrent states from the engine that prefilled it.

    Raises:
        ConfigError: a setting cannot be used.
        UnsupportedModel: the model's caches cannot be transferred.
    """

    _cache_hit_source = CacheHitSource.P2P

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        assert transfer is not None
        self._settings = parse_settings(transfer.kv_connector_extra_config, role=transfer.kv_role)
        parallel = vllm_config.parallel_config
        check_parallelism(parallel)
        check_recomputation(
            self._settings,
            recomputes=transfer.kv_load_failure_policy == "recompute",
            is_async_scheduling=bool(vllm_config.scheduler_config.async_scheduling),
        )
        self._groups = transfer_groups(kv_cache_config)
        self._config = kv_cache_config
        self._producer: ProducerScheduler | None = None
        self._consumer: ConsumerScheduler | None = None
        self._worker: Worker | None = None
        self._counters = Counters()
        if role == KVConnectorRole.WORKER:
            self._limit_waits()
            from connector.worker import Worker  # noqa: PLC0415  # needs mori, schedulers do not

            self._worker = Worker(vllm_config, kv_cache_config, self._settings, self._counters)
        else:
            check_transferable(self._groups, self._settings.drafter_groups)
            self._start_scheduler_half(vllm_config)
        self._say_what_applies()

    def _limit_waits(self) -> None:
        for warning in limit_waits(os.environ, self._settings.control_timeout_s):
            log.warning("setting-replaced", role=self._settings.side, half="worker", reason=warning)

    def _start_scheduler_half(self, vllm_config: VllmConfig) -> None:
        settings = self._settings
        parallel = vllm_config.parallel_config
        if not settings.is_producer:
            self._consumer = ConsumerScheduler(
                self._groups,
                settings.load_mode,
                parallel.tensor_parallel_size,
                self._counters,
                self._config.select_transfer_block_ids,
            )
            return
        host_ip = own_address(settings)
        address = {
            "remote_engine_id": f"{host_ip}:{settings.handshake_port}",
            "remote_host": host_ip,
            "remote_handshake_port": settings.handshake_port,
            "remote_notify_port": settings.notify_port,
            **address_of(parallel),
            "remote_dp_rank_override": True,
            "tp_size": parallel.tensor_parallel_size,
        }
        self._producer = ProducerScheduler(
            self._groups, settings.hold_timeout_s, address, self._counters
        )

    def _say_what_applies(self) -> None:
        settings = self._settings
        half = "worker" if self._worker is not None else "scheduler"
        about = {"role": settings.side, "half": half}
        log.info("started", **about, groups=[group.name for group in self._groups.on_wire])
        if settings.unused:
            log.info("unused-settings", **about, keys=settings.unused)
        if settings.load_mode == "sync" and len(self._config.kv_cache_groups) > 1:
            log.warning(
                "sync-loads-fail-the-step",
                **about,
                reason="with several cache groups vLLM cannot fail one request for a failed load",
            )

    # ------------------------------------------------------------ scheduler half

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: KVTransferConfig) -> bool:
        return False

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        return HybridStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[Any]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics:
        return HybridPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        """With a state on its way, the attention prefix found here is of use without one.

        Not beside a sliding window, or full attention of another spec, such as a drafter's: their
        own hits may lag behind that of the first, and nobody would fill what lies between.
        """
        return self._groups.has_state and self._groups.has_one_attention

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        if self._consumer is not None:
            self._consumer.bind_kv_cache_manager(kv_cache_manager)

    def on_new_request(self, request: Request) -> None:
        if self._producer is not None:
            self._producer.on_new_request(request)
        if self._consumer is not None:
            self._consumer.on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int, bool]:
        if self._consumer is None:
            return 0, False
        return self._consumer.get_num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        if self._producer is not None:
            self._producer.update_state_after_alloc(request)
        if self._consumer is not None:
            ids = blocks.get_block_ids() if num_external_tokens else ()
            transferred = self._config.select_transfer_block_ids(ids) if ids else ()
            self._consumer.update_state_after_alloc(request, transferred, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        half = self._producer or self._consumer
        assert half is not None
        return half.build_orders(scheduler_output)

    def get_loaded_kv_cache_group_ids(self, request: Request) -> tuple[int, ...]:
        group_ids = self._config.transfer_group_ids
        if self._consumer is None:
            return tuple(group_ids)
        return tuple(group_ids[index] for index in self._consumer.loaded_groups(request))

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        if self._producer is None:
            assert self._consumer is not None
            self._consumer.request_finished(request)
            return False, None
        transferred = self._config.select_transfer_block_ids(block_ids)
        return self._producer.request_finished(request, transferred)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        half = self._producer or self._consumer
        assert half is not None
        half.update_connector_output(connector_output)

    # --------------------------------------------------------------- worker half

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        assert self._worker is not None
        self._worker.register_kv_caches(kv_caches)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Called once a step: before the forward pass if a load has to be in place by then."""
        assert self._worker is not None
        self._worker.take_orders(self._orders())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: no forward pass starts before its loads are complete."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: AttentionMetadata,
        **kwargs: Any,
    ) -> None:
        """Nothing: the consumer reads."""

    def wait_for_save(self) -> None:
        """Let no output of a hand-off out before the device has written all of its KV.

        The sampled token may reach the host while a drafter or a copy of states still runs.
        """
        if self._orders().settles and self._writes_after_sampling:
            torch.cuda.current_stream().synchronize()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        assert self._worker is not None
        return self._worker.results()

    def get_block_ids_with_load_errors(self) -> set[int]:
        assert self._worker is not None
        return self._worker.invalid_blocks()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        assert self._worker is not None
        return self._worker.renewals()

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        data = self._counters.take()
        return HybridStats(data=data) if data else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def has_connector_metadata(self) -> bool:
        return getattr(self, "_connector_metadata", None) is not None

    # ------------------------------------------------------------------ internal

    def _orders(self) -> StepOrders:
        orders = self._connector_metadata
        assert isinstance(orders, StepOrders)
        return orders

    @property
    def _writes_after_sampling(self) -> bool:
        return self._groups.has_state or self._vllm_config.num_speculative_tokens > 0


with suppress(ValueError):  # it is known already
    # By this name vLLM's MultiConnector looks up whose statistics it has been sent.
    KVConnectorFactory.register_connector("HybridReadConnector", "connector", "HybridReadConnector")
