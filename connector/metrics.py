"""The connector's counters in vLLM's log line and as Prometheus metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
)

COUNTERS = {
    "loads": "Loads that are in place, one a rank and request.",
    "failed_loads": "Loads that failed; the request fails or is computed again.",
    "releases": "Releases by consumers.",
    "unknown_releases": "Releases of what is not held: late, repeated, or of another start.",
    "sent_renewals": "Holds whose lease was asked to be renewed, one a rank and message.",
    "renewals": "Renewals by consumers.",
    "unknown_renewals": "Renewals of what is not held: late, or of another start.",
    "malformed_messages": "Messages on the side channel that could not be understood.",
    "queue_full": "Reads repeated because the send queue was full.",
    "renewed_connections": "Connections replaced after a failed read.",
    "unprotected_peers": "Producers that cannot confirm that they hold blocks while they are read.",
    "missed_pings": "Messages to the proxy that did not reach it.",
}


class HybridStats(KVConnectorStats):
    """What was counted in an interval, by counter."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, count in other.data.items():
            self.data[name] = self.data.get(name, 0) + count
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not self.data


class HybridPromMetrics(KVConnectorPromMetrics):
    """One Prometheus counter for each of `COUNTERS`."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[Any]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[tuple[str, int], Counter] = {}
        for name, documentation in COUNTERS.items():
            counter = self._counter_cls(
                name=f"vllm:hybrid_read_{name}", documentation=documentation, labelnames=labelnames
            )
            for engine, values in per_engine_labelvalues.items():
                self._counters[name, engine] = counter.labels(*values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, count in transfer_stats_data.items():
            self._counters[name, engine_idx].inc(count)
