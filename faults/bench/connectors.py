"""What a connector costs, beside another on the same requests: its own processor time by half,
and what it sends, waits for and keeps.

Processor time is that of the connector's code and of the libraries it calls; whatever stands in
for sockets, threads, the device and mori.io does not count, and neither does loading the code. The
two halves are told apart by the process, so engines run the multi-process executor.
"""

from __future__ import annotations

import tracemalloc
from statistics import fmean
from types import FrameType
from typing import Any

import msgspec

from faults.bench.measure import cpu_clock
from faults.bench.profile import Sampler
from sim.engine.connectors import get_connector
from sim.fabric.work import WorkRequestChain
from sim.kernel import Kernel
from sim.kernel.plain_text import GUEST_ROOT
from sim.network.message import size_of
from sim.probes import Probe
from sim.router.options import Hold, RouterOptions
from sim.run import TestBed, rehearse, run
from sim.scenario import Scenario
from sim.units import MS, US
from sim.verdict import Verdict

COMPARED = ("moriio", "hybrid")
MODELS = ("llama", "kimi-linear")
HALVES = ("scheduler", "worker")
_STARTING = "starting"
_HOLD_S, _LOOK_AT_NS = 3.0, 2_500 * MS  # all 40 requests have been prefilled by then


def compared(scenario: Scenario, runs: int) -> dict[str, Any]:
    """Figures by model and connector; runs of the two take turns."""
    figures: dict[str, Any] = {}
    for model in MODELS:
        scenarios = {name: _of(scenario, model, name) for name in COMPARED}
        clocks = {name: _Clock(get_connector(name).roots) for name in COMPARED}
        for each in scenarios.values():
            rehearse(each)
        for _ in range(runs):
            for name in COMPARED:
                clocks[name].measure(scenarios[name])
        figures[model] = {
            name: {
                **clocks[name].us_per_request(),
                **costs(scenarios[name]),
                "held_bytes": held_bytes(scenarios[name]),
            }
            for name in COMPARED
        }
    return figures


def _of(scenario: Scenario, model: str, connector: str) -> Scenario:
    return msgspec.structs.replace(scenario, model=model, connector=connector)


# ------------------------------------------------------------------ processor time


class _Clock(Probe):
    """Samples runs of one connector from the first request on."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots
        self._sampler = Sampler(self._half_of)
        self._requests = 0
        self._cpu_s = 0.0
        self._begin_s = 0.0
        self._has_begun = False

    def measure(self, scenario: Scenario) -> None:
        self._has_begun = False
        with self._sampler.running():
            outcome = run(scenario, probe=self).outcome
        self._cpu_s += cpu_clock() - self._begin_s
        self._requests += outcome.requests["total"]

    def workload_began(self) -> None:
        self._begin_s = cpu_clock()
        self._has_begun = True

    def us_per_request(self) -> dict[str, float]:
        found, each_s = self._sampler.found, self._cpu_s / self._requests
        total = max(1, found.total() - found[_STARTING])
        return {f"{half}_us": found[half] / total * each_s * 1e6 for half in HALVES}

    def _half_of(self, frame: FrameType | None) -> str:
        """The half whose code runs, or ``other``: the simulator, vLLM."""
        if not self._has_begun:
            return _STARTING
        while frame is not None:
            name = str(frame.f_globals.get("__name__", ""))
            if name.startswith("sim."):
                break
            root, _, rest = name.partition(".")
            process, _, original = rest.partition(".")
            if root == GUEST_ROOT and original.startswith(self._roots):
                return "worker" if "_rank" in process else "scheduler"
            frame = frame.f_back
        return "other"


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
