"""What a connector costs, beside another on the same requests: time to plan and to post reads, and
what it sends, waits for and keeps.

Time is that of the connector's code and of the libraries it calls (`faults.bench.paths`).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import msgspec

from faults.bench.paths import Least
from sim.engine.connectors import get_connector
from sim.fabric.work import WorkRequestChain
from sim.kernel import Kernel
from sim.network.message import size_of
from sim.probes import Probe
from sim.router.options import Hold, RouterOptions
from sim.run import TestBed, run
from sim.scenario import Scenario
from sim.units import MS, US
from sim.verdict import Verdict

UPSTREAM = "moriio"
COMPARED: dict[str, tuple[str, dict[str, Any]]] = {
    UPSTREAM: ("moriio", {}),
    "hybrid": ("hybrid", {}),
    "hybrid, verify_reads": ("hybrid", {"verify_reads": "all"}),
}
"""Connector and settings of each column. The times of the last hold a little of what stands in for
the executor and the stream of its digests."""
MODELS = ("llama", "deepseek-mla", "gemma-swa", "kimi-linear")  # that both connectors support
_HOLD_S, _LOOK_AT_NS = 3.0, 2_500 * MS  # all 40 requests have been prefilled by then


def compared(
    scenario: Scenario, runs: int, models: Sequence[str] = MODELS
) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by model and column; their runs take turns."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for model in models:
        scenarios = {name: _of(scenario, model, name) for name in COMPARED}
        times = {name: Least(scenarios[name]) for name in COMPARED}
        for _ in range(runs):
            for name in COMPARED:
                times[name].run()
        found = {
            name: {
                **times[name].us_per_request(),
                **costs(scenarios[name]),
                "held_bytes": held_bytes(scenarios[name]),
            }
            for name in COMPARED
        }
        for of_column in found.values():
            of_column["added_us"] = of_column["load_us"] - found[UPSTREAM]["load_us"]
        figures[model] = found
    return figures


def _of(scenario: Scenario, model: str, column: str) -> Scenario:
    connector, settings = COMPARED[column]
    return msgspec.structs.replace(
        scenario, model=model, connector=connector, extra_config=settings
    )


# ------------------------------------------------------- messages, bytes, latency


class _Costs(Probe):
    """Counts what crosses the network and the fabric, and how long loads keep a request."""

    def __init__(self) -> None:
        self.messages = self.message_bytes = self.work_requests = self.read_bytes = 0
        self.waits_us: list[float] = []
        self._allocated: dict[str, int] = {}

    def prepare(self, bed: TestBed) -> None:
        self._kernel = bed.kernel
        bed.world.network.verdicts.add(self)

    def judge(self, item: Any) -> Verdict | None:
        """A message; it goes its way."""
        self.messages += item.kind == "message"
        self.message_bytes += size_of(item.frames)
        return None

    def workload_began(self) -> None:
        self.messages = self.message_bytes = 0

    def transfer_posted(self, chain: WorkRequestChain) -> None:
        self.work_requests += chain.count
        self.read_bytes += chain.segments.total_bytes

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        if node.startswith("d"):
            self._allocated.setdefault(request_id, self._kernel.now_ns)

    def blocks_read(self, node: str, rank: int, request_id: str, group: int, blocks: Any) -> None:
        begin_ns = self._allocated.pop(request_id, None)
        if begin_ns is not None:
            self.waits_us.append((self._kernel.now_ns - begin_ns) / US)


def costs(scenario: Scenario) -> dict[str, float]:
    """Of one run, for each request."""
    counts = _Costs()
    outcome = run(scenario, probe=counts, prepare=counts.prepare).outcome
    requests = outcome.requests["total"]
    return {
        "load_us": fmean(counts.waits_us),
        "messages": counts.messages / requests,
        "message_bytes": counts.message_bytes / requests,
        "work_requests": counts.work_requests / requests,
        "read_bytes": counts.read_bytes / requests,
    }


# --------------------------------------------------------------------- memory


class _Memory(Probe):
    """What code under ``folders`` has allocated since the first request and not given back."""

    def __init__(self, kernel: Kernel, folders: list[str]) -> None:
        self.allocated = 0
        self._kernel = kernel
        self._filters = [tracemalloc.Filter(inclusive=True, filename_pattern=f) for f in folders]

    def workload_began(self) -> None:
        tracemalloc.start()
        self._kernel.call_later(_LOOK_AT_NS, self._look)

    def _look(self) -> None:
        found = tracemalloc.take_snapshot().filter_traces(self._filters).statistics("filename")
        tracemalloc.stop()
        self.allocated = sum(statistic.size for statistic in found)


def held_bytes(scenario: Scenario) -> float:
    """Memory that the connector's code has allocated for each request whose blocks a producer
    holds, the transfer parameters included that the router keeps meanwhile."""
    requests = scenario.workload.requests
    assert isinstance(requests, int)
    names = [f"req-{number}" for number in range(requests)]
    holds = tuple(Hold(name, _HOLD_S) for name in names)
    holding = msgspec.structs.replace(
        scenario, router=RouterOptions(holds=holds), quiet_phase_s=0.0
    )
    folders = [f"*/{root.replace('.', '/')}/*" for root in get_connector(scenario.connector).roots]
    probes: list[_Memory] = []

    def prepare(bed: TestBed) -> None:
        probes.append(_Memory(bed.kernel, folders))
        bed.world.probes.add(probes[0])

    run(holding, prepare=prepare)
    return probes[0].allocated / len(names)
