"""Two engines on one machine that copy between their GPUs."""

from __future__ import annotations

from typing import Any

import torch

from sim.fabric import Fabric
from sim.fabric.mori_io import make
from sim.kernel import Kernel, Node, Process
from sim.verdict import Verdict

SIZE = 1 << 20


class Once:
    """One answer to the next question of a kind."""

    def __init__(self, kind: type, verdict: Verdict) -> None:
        self.kind, self.verdict = kind, verdict

    def judge(self, item: Any) -> Verdict | None:
        if self.verdict is None or not isinstance(item, self.kind):
            return None
        verdict, self.verdict = self.verdict, None
        return verdict


class World:
    """Engines ``d`` and ``p`` on one machine; ``run`` is a thread of d's process."""

    def __init__(self, kernel: Kernel, environ: dict[str, str]) -> None:
        self.kernel = kernel
        self.fabric = Fabric(kernel)
        self.mori = make(kernel, self.fabric, environ)
        self.node = Node("n", "10.0.0.1")
        self.processes = {name: Process(self.node, name) for name in "pd"}
        self.tensors: dict[str, torch.Tensor] = {}
        self.packed: list[bytes] = []
        self.landed: list[Any] = []
        self.fabric.on_landing(self)

    def before_landing(self, landing: Any) -> None:
        pass

    def after_landing(self, landing: Any) -> None:
        self.landed.append((self.kernel.now_ns, landing))

    def register(self, engine: Any, tensor: torch.Tensor, device: int = 0) -> Any:
        gpu = self.mori.MemoryLocationType.GPU
        return engine.register_memory(tensor.data_ptr(), tensor.numel(), device, gpu)

    def start(self, name: str) -> tuple[Any, Any]:
        engine = self.mori.IOEngine(name, self.mori.IOEngineConfig("10.0.0.1", 5000))
        engine.create_backend(self.mori.BackendType.XGMI)
        tensor = self.tensors[name] = torch.zeros(SIZE, dtype=torch.uint8)
        memory = self.register(engine, tensor)
        if name == "p":
            self.packed = [engine.get_engine_desc().pack(), memory.pack()]
        return engine, memory

    def peer(self, engine: Any) -> Any:
        """Make p known to d; returns p's memory."""
        engine.register_remote_engine(self.mori.EngineDesc.unpack(self.packed[0]))
        return self.mori.MemoryDesc.unpack(self.packed[1])

    def run(self, body: Any) -> Any:
        """Start p, then run ``body(engine, local_desc, remote_desc)`` in d's process."""
        results: list[Any] = []

        def main() -> None:
            self.kernel.sleep(1)
            engine, local = self.start("d")
            results.append(body(engine, local, self.peer(engine)))

        self.kernel.spawn(self.processes["p"], self.start, "p", name="p", guest=False)
        self.kernel.spawn(self.processes["d"], main, name="d", guest=False)
        self.kernel.run()
        return results[0] if results else None
