"""The library's own benchmark, run on a simulated fabric: what it would print there.

As in the published measurements each initiator has one batch outstanding: it takes the time of
the call and of the wait, and begins the next one. Initiators are processes of one machine, each
with a NIC, a target on the other machine and as many queue pairs as the table says. No item is
next to another, because the measured library merged none; to save memory they are all the same
place, as only their number and size cost time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from faults.bench.published import Measurement
from sim.fabric import Fabric, FabricProfile
from sim.fabric.mori_io import make
from sim.kernel import Kernel, Node, Process, Seed
from sim.units import US

_WARM_UP = 1
_CONNECTED_NS = 1_000_000_000  # more than what all take to set up


@dataclass(frozen=True, slots=True)
class Prediction:
    """A published row and the latency of the same benchmark on a simulated fabric."""

    measured: Measurement
    latency_us: float

    @property
    def gb_per_s(self) -> float:
        """Payload over latency, which is how the library counts."""
        return self.measured.message_bytes * self.measured.batch / self.latency_us / 1000

    @property
    def error(self) -> float:
        """Predicted over published latency, less one."""
        return self.latency_us / self.measured.latency_us - 1


def predict(profile: FabricProfile, row: Measurement, iterations: int = 4) -> Prediction:
    """Run the benchmark of ``row`` on ``profile``; the last initiator's average, as published."""
    with Kernel(Seed(0)).running() as kernel:
        bench = _Benchmark(kernel, profile, row)
        for number in range(row.device_pairs):
            bench.start(number, _WARM_UP + iterations)
        kernel.run()
        for failure in kernel.failures:
            raise failure.exception
        times = bench.latencies_ns[row.device_pairs - 1][_WARM_UP:]
    return Prediction(row, sum(times) / len(times) / US)


class _Benchmark:
    """Two machines, and the latency of every batch by initiator."""

    def __init__(self, kernel: Kernel, profile: FabricProfile, row: Measurement) -> None:
        self.latencies_ns: dict[int, list[int]] = {}
        self._kernel = kernel
        self._row = row
        self._mori: ModuleType = make(kernel, Fabric(kernel, profile))
        self._machines = [Node("initiator", "10.0.0.1"), Node("target", "10.0.0.2")]
        self._targets: dict[int, tuple[Any, Any]] = {}

    def start(self, number: int, batches: int) -> None:
        """Let a target and its initiator begin."""
        self._spawn(1, number, self._serve, number)
        self._spawn(0, number, self._initiate, number, batches)

    def _spawn(self, machine: int, number: int, body: Callable[..., None], *args: int) -> None:
        process = Process(self._machines[machine], f"{self._machines[machine].name}-{number}")
        self._kernel.spawn(process, body, *args, name=process.name, guest=False)

    def _serve(self, number: int) -> None:
        self._targets[number] = self._engine(1, number)

    def _initiate(self, number: int, batches: int) -> None:
        engine, memory = self._engine(0, number)
        self._kernel.sleep(1)  # until the target is there
        target, remote = self._targets[number]
        engine.register_remote_engine(target.get_engine_desc())
        session = engine.create_session(memory, remote)
        transfer = getattr(session, f"batch_{self._row.operation}")
        self._kernel.sleep(_CONNECTED_NS - self._kernel.now_ns)
        offsets, sizes = [0] * self._row.batch, [self._row.message_bytes] * self._row.batch
        times = self.latencies_ns[number] = []
        for _batch in range(batches):
            began_ns = self._kernel.now_ns
            status = transfer(offsets, offsets, sizes, engine.allocate_transfer_uid())
            status.Wait()
            assert status.Succeeded(), status.Message()
            times.append(self._kernel.now_ns - began_ns)

    def _engine(self, machine: int, number: int) -> tuple[Any, Any]:
        node = self._machines[machine]
        engine = self._mori.IOEngine(
            f"{node.name}-{number}", self._mori.IOEngineConfig(node.ip, 5000 + number)
        )
        config = self._mori.RdmaBackendConfig(qp_per_transfer=self._row.queue_pairs)
        engine.create_backend(self._mori.BackendType.RDMA, config)
        buffer = torch.zeros(self._row.message_bytes, dtype=torch.uint8)
        return engine, engine.register_torch_tensor(buffer)
