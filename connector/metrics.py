"""The connector's metrics in vLLM's log line and as Prometheus metrics.

What is handed over is flat: a number for a counter or a gauge, a list of values for a histogram. A
counter with a label has one entry for each value of it, ``name:value``.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge, Histogram
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
)

from connector.core.load import Cause

COUNTERS = {
    "loads": "Loads that are in place, one a rank and request.",
    "reads": "Batches of RDMA reads that were posted, repetitions included.",
    "loaded_bytes": "Bytes of loads that are in place.",
    "releases": "Releases by consumers.",
    "unknown_releases": "Releases of what is not held: late, repeated, or of another start.",
    "sent_renewals": "Holds whose lease was asked to be renewed, one a rank and message.",
    "renewals": "Renewals by consumers.",
    "unknown_renewals": "Renewals of what is not held: late, or of another start.",
    "expired_leases": "Leases that ended without a release by all readers.",
    "malformed_messages": "Messages on the side channel that could not be understood.",
    "queue_full": "Reads repeated because the send queue was full.",
    "renewed_connections": "Engines of mori.io replaced because a read failed or did not end.",
    "repeated_loads": "Loads that were read once more because the first reads failed or were slow.",
    "unprotected_peers": "Producers that cannot confirm that they hold blocks while they are read.",
    "verified_loads": "Loads that are in place and whose digests are the producer's.",
    "unverified_peers": "Producers that cannot tell digests of what they hold.",
    "missed_pings": "Messages to the proxy that did not reach it.",
}
BY_CAUSE = {"failed_loads": "Loads that failed; the request fails or is computed again."}
"""Counters with the label ``cause``, whose values are those of `Cause`."""
GAUGES = {"held_leases": "Requests whose blocks a producer holds for readers."}
HISTOGRAMS = {"load_seconds": "From the order of a load to its end; of those that are in place."}
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


class HybridStats(KVConnectorStats):
    """What happened in an interval."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            if isinstance(value, list):
                self.data[name] = [*self.data.get(name, []), *value]
            elif name in GAUGES:
                self.data[name] = value
            else:
                self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        reduced: dict[str, int | float] = {}
        for name, value in self.data.items():
            if isinstance(value, list):
                reduced[f"{name}_avg"] = round(sum(value) / len(value), 6)
                reduced[f"{name}_max"] = round(max(value), 6)
            else:
                reduced[name] = value
        return reduced

    def is_empty(self) -> bool:
        return not self.data


class HybridPromMetrics(KVConnectorPromMetrics):
    """One Prometheus metric ``vllm:hybrid_read_<name>`` for each of the above."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[Any]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._metrics: dict[tuple[str, int], Any] = {}
        for name, text in COUNTERS.items():
            self._make(self._counter_cls, name, text)
        for name, text in GAUGES.items():
            self._make(self._gauge_cls, name, text, multiprocess_mode="mostrecent")
        for name, text in HISTOGRAMS.items():
            self._make(self._histogram_cls, name, text, buckets=_BUCKETS)
        for name, text in BY_CAUSE.items():
            counter = self._counter_cls(
                name=_full(name), documentation=text, labelnames=[*labelnames, "cause"]
            )
            for engine, values in per_engine_labelvalues.items():
                for cause in Cause:
                    self._metrics[f"{name}:{cause}", engine] = counter.labels(*values, cause)

    def _make(self, cls: Any, name: str, text: str, **options: Any) -> None:
        metric = cls(name=_full(name), documentation=text, labelnames=self._labelnames, **options)
        for engine, values in self.per_engine_labelvalues.items():
            self._metrics[name, engine] = metric.labels(*values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            metric: Counter | Gauge | Histogram = self._metrics[name, engine_idx]
            if isinstance(metric, Histogram):
                for observed in value:
                    metric.observe(observed)
            elif isinstance(metric, Gauge):
                metric.set(value)
            else:
                metric.inc(value)


def _full(name: str) -> str:
    return f"vllm:hybrid_read_{name}"
