"""The connector's metrics, as vLLM's own classes log and export them."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from doc_commands import lines
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorLogging,
    KVConnectorProm,
)

from connector.core.load import Cause
from connector.counters import Counters
from connector.metrics import BY_CAUSE, COUNTERS, GAUGES, HISTOGRAMS, HybridStats

ROOT = Path(__file__).parents[2]
TRANSFER = KVTransferConfig(
    kv_connector="HybridReadConnector", kv_connector_module_path="connector", kv_role="kv_consumer"
)


class Config:
    """What vLLM's classes look at."""

    kv_transfer_config = TRANSFER


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def prometheus(registry: CollectorRegistry) -> KVConnectorProm:
    """vLLM's exporter for two engines, in a registry of its own."""

    class Prom(KVConnectorProm):
        _counter_cls: Any = partial(Counter, registry=registry)
        _gauge_cls: Any = partial(Gauge, registry=registry)
        _histogram_cls: Any = partial(Histogram, registry=registry)

    config: Any = Config()
    return Prom(config, ["model_name", "engine"], {0: ["m", "0"], 1: ["m", "1"]})


def test_counts_are_taken_once_and_add_up() -> None:
    """What was counted in a step is handed over with it, and summed over ranks and steps; of a
    gauge the latest value stays, of a histogram every one."""
    counters = Counters()
    counters.add("loads")
    counters.add("loads", 2)
    counters.add("renewals", 0)
    counters.add(f"failed_loads:{Cause.READ_FAILED}")
    counters.observe("load_seconds", 0.5)
    counters.set("held_leases", 3)
    first = HybridStats(data=counters.take())
    assert HybridStats(data=counters.take()).is_empty()
    total = first.aggregate(HybridStats(data={"loads": 4, "load_seconds": [1.5], "held_leases": 1}))
    assert total.reduce() == {
        "loads": 7,
        "failed_loads:read-failed": 1,
        "load_seconds_avg": 1.0,
        "load_seconds_max": 1.5,
        "held_leases": 1,
    }
    total.reset()
    assert total.is_empty()


def test_vllms_log_line_has_the_metrics_of_an_interval() -> None:
    """Through the class that vLLM's factory finds for the connector."""
    logging = KVConnectorLogging(TRANSFER)
    logging.observe({"loads": 2, "load_seconds": [0.1, 0.3]})
    logging.observe({"loads": 1, "failed_loads:no-answer": 1})
    said: list[str] = []
    logging.log(lambda text, *values: said.append(text % values))
    logging.log(lambda text, *values: said.append(text % values))  # nothing new
    assert said == [
        "KV Transfer metrics: loads=3, load_seconds_avg=0.2, load_seconds_max=0.3, "
        "failed_loads:no-answer=1"
    ]


def test_everything_is_exported_by_vllms_prometheus_class(
    prometheus: KVConnectorProm, registry: CollectorRegistry
) -> None:
    """Counters and gauges by name, failures by cause, latencies as a histogram, for each engine."""
    data: dict[str, Any] = {**dict.fromkeys(COUNTERS, 3), **dict.fromkeys(GAUGES, 5)}
    data |= {f"{name}:{cause}": 2 for name in BY_CAUSE for cause in Cause}
    data |= {name: [0.003, 4.0] for name in HISTOGRAMS}
    prometheus.observe(data, 1)
    prometheus.observe(data, 1)

    def value(name: str, engine: int = 1, **labels: str) -> float | None:
        labels |= {"model_name": "m", "engine": str(engine)}
        return registry.get_sample_value(f"vllm:hybrid_read_{name}", labels)

    for name in COUNTERS:
        assert (value(f"{name}_total"), value(f"{name}_total", 0)) == (6, 0)
    for name in GAUGES:
        assert (value(name), value(name, 0)) == (5, 0)
    for cause in Cause:
        assert value("failed_loads_total", cause=cause) == 4
    assert value("load_seconds_count") == 4
    assert value("load_seconds_sum") == pytest.approx(8.006)
    assert value("load_seconds_bucket", le="0.005") == 2


def test_what_the_page_greps_for_is_exported(
    prometheus: KVConnectorProm, registry: CollectorRegistry
) -> None:
    """The first request's check in docs/connector.md, on what vLLM would serve at /metrics."""
    prometheus.observe({"loads": 8, "failed_loads:read-failed": 0, "releases": 8}, 0)
    metrics = generate_latest(registry).decode()
    found = {}
    for line in (line for line in lines() if " | grep " in line.text):
        grep = shlex.split(line.text.partition(" | ")[2])
        done = subprocess.run(grep, input=metrics, capture_output=True, text=True, check=True)
        for row in done.stdout.splitlines():
            if not row.startswith("#") and 'engine="0"' in row:
                name, _, value = row.rpartition(" ")
                found[name.partition("{")[0]] = float(value)
    prefix = "vllm:hybrid_read_"
    assert found == {
        f"{prefix}loads_total": 8,
        f"{prefix}failed_loads_total": 0,
        f"{prefix}releases_total": 8,
    }


def test_what_operators_read_names_all_metrics_and_causes() -> None:
    """docs/connector.md: none is missing, and none is there that does not exist."""
    text = (ROOT / "docs/connector.md").read_text()
    section = text.partition("## Metrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.M)
    named = {name for row in rows for name in re.findall(r"`([a-z_-]+)`", row)}
    assert named == {*COUNTERS, *GAUGES, *HISTOGRAMS, *BY_CAUSE, *Cause}


def test_the_code_counts_nothing_else() -> None:
    """Every name that is counted anywhere is exported."""
    counted = set()
    for path in (ROOT / "connector").rglob("*.py"):
        counted |= set(
            re.findall(r"ounters\.(?:add|set|observe)\(\s*f?\"([a-z_]+)", path.read_text())
        )
    exported = {*COUNTERS, *GAUGES, *HISTOGRAMS, *BY_CAUSE}
    assert counted <= exported
    assert exported - counted <= {"unknown_releases"}  # chosen by an expression
