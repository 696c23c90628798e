"""The connector's counters, as vLLM logs and exports them."""

from __future__ import annotations

from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connector.counters import Counters
from connector.metrics import COUNTERS, HybridPromMetrics, HybridStats


def test_counts_are_taken_once_and_add_up() -> None:
    """What was counted in a step is handed over with it, and summed over ranks and steps."""
    counters = Counters()
    counters.add("loads")
    counters.add("loads", 2)
    counters.add("failed_loads")
    first = HybridStats(data=counters.take())
    assert HybridStats(data=counters.take()).is_empty()
    total = first.aggregate(HybridStats(data={"loads": 4}))
    assert total.reduce() == {"loads": 7, "failed_loads": 1}
    total.reset()
    assert total.is_empty()


def test_every_counter_is_a_prometheus_metric() -> None:
    """With the engine's labels."""
    registry = CollectorRegistry()

    registered: Any = partial(Counter, registry=registry)

    class Config:
        kv_transfer_config = None

    metrics = HybridPromMetrics(
        Config(), {Counter: registered, Gauge: Gauge, Histogram: Histogram}, ["engine"], {0: ["0"]}
    )
    metrics.observe(dict.fromkeys(COUNTERS, 3), 0)
    for name in COUNTERS:
        sample = registry.get_sample_value(f"vllm:hybrid_read_{name}_total", {"engine": "0"})
        assert sample == 3
