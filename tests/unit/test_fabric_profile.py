from __future__ import annotations

import pytest
import torch

from sim.fabric import Fabric
from sim.fabric.mori_io import make
from sim.kernel import Kernel, Node, Process, Seed

# Average latency in microseconds by message size: published ConnectX-7 tables, batch 1.
WRITE = {1024: 5.87, 8192: 5.96, 65536: 7.20, 524288: 16.40, 4194304: 90.44, 67108864: 1360.09}
READ = {1024: 6.74, 8192: 6.66, 65536: 8.23, 524288: 18.31, 4194304: 99.99, 67108864: 1498.58}


def _session(kernel: Kernel, size: int):
    """Two engines; returns a session of the second with the first, made in the current task."""
    mori = make(kernel, Fabric(kernel))
    engines, descs = [], []
    for n in (1, 2):
        engine = mori.IOEngine(f"e{n}", mori.IOEngineConfig(f"10.0.0.{n}", 0))
        engine.create_backend(mori.BackendType.RDMA)
        engines.append(engine)
        descs.append(engine.register_torch_tensor(torch.zeros(size, dtype=torch.uint8)))
    engines[1].register_remote_engine(engines[0].get_engine_desc())
    return engines[1].create_session(descs[1], descs[0])


@pytest.mark.parametrize(("operation", "table"), [("batch_write", WRITE), ("batch_read", READ)])
def test_latency_reproduces_the_published_tables(operation: str, table: dict[int, float]) -> None:
    """From the call to the end of the wait, within 4 % of what was measured on hardware."""
    found: dict[int, float] = {}

    def body() -> None:
        session = _session(kernel, max(table))
        for size in table:
            began = kernel.now_ns
            getattr(session, operation)([0], [0], [size], 0).Wait()
            found[size] = (kernel.now_ns - began) / 1000

    with Kernel(Seed(1)).running() as kernel:
        kernel.spawn(Process(Node("n", "10.0.0.1"), "w"), body, name="t", guest=False)
        kernel.run()
    assert found == pytest.approx(table, rel=0.04)
