"""The simulator as an arm of the conformance suite."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from msgspec.structs import replace

from hw_tests.conformance.arm import Pair
from sim.fabric import (
    CX7,
    CompletionItem,
    CopyItem,
    CopyPostItem,
    Fabric,
    FabricProfile,
    LandPart,
    Operation,
    PostItem,
    PostPart,
    SendItem,
    WorkRequestItem,
)
from sim.fabric.mori_io import make, make_cpp
from sim.fabric.verdicts import ControlItem
from sim.kernel import Kernel, Node, Process, Seed
from sim.units import SECOND, seconds_to_ns
from sim.verdict import Delay, Drop, Fail, Verdict

_FATAL_TO_A_QUEUE_PAIR = ("QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR")
"""Events after which a queue pair is in its error state; others about one leave it as it is."""


class Once:
    """A rule that answers the first item for which ``answer`` has a verdict, then never again."""

    def __init__(self, answer: Callable[[Any], Verdict | None], times: int = 1) -> None:
        self.answer = answer
        self.left = times

    def judge(self, item: Any) -> Verdict | None:
        verdict = self.answer(item) if self.left else None
        self.left -= verdict is not None
        return verdict


class SimArm:
    """Engines of the simulated library, each in a process and on a machine of its own."""

    features = frozenset(
        {
            *("counts", "completions", "posts", "events", "processes", "control-plane"),
            *("xgmi", "gpu-rdma", "copies", "no-device", "transport"),
        }
    )

    def __init__(self, kernel: Kernel, profile: FabricProfile = CX7) -> None:
        self.kernel = kernel
        self.fabric = Fabric(kernel, profile)
        self.mori = make(kernel, self.fabric)
        self.transfer_status = make_cpp(self.mori).TransferStatus
        self._machines = 0
        self._keys: dict[str, Process] = {}

    # ---------------------------------------------------- engines and time

    def engine(self, key: str) -> Any:
        return self._in_process(self._new_process(key), self._make_engine, key, 0)

    def pair(
        self, size: int = 1 << 20, *, target: dict[str, int] | None = None, **config: int
    ) -> Pair:
        engines, tensors, descs = [], [], []
        config = {"enable_notification": 0, **config}
        for role, values in (("initiator", config), ("target", {**config, **(target or {})})):
            key = f"{role}-{self._machines}"
            engine = self.engine(key)
            engine.create_backend(self.mori.BackendType.RDMA, self._config(values))
            tensor = torch.zeros(size, dtype=torch.uint8)
            engines.append(engine)
            tensors.append(tensor)
            descs.append(engine.register_torch_tensor(tensor))
        return self._pair(engines, tensors, descs)

    def _pair(self, engines: list[Any], tensors: list[Any], descs: list[Any]) -> Pair:
        for engine, other in (engines, engines[::-1]):
            engine.register_remote_engine(other.get_engine_desc())
        return Pair(*engines, *tensors, *descs)

    def gpu_pair(
        self,
        size: int,
        *,
        backends: tuple[str, ...] = ("XGMI",),
        rdma: dict[str, int] | None = None,
        target: dict[str, int] | None = None,
    ) -> Pair:
        engines, tensors, descs = [], [], []
        common = {"enable_notification": 0, **(rdma or {})}
        node = self._new_node()
        for role, values in (("initiator", common), ("target", {**common, **(target or {})})):
            key = f"{role}-{node.name}"
            self._keys[key] = Process(node, role)
            engine = self._in_process(self._keys[key], self._make_engine, key, 0)
            for backend in backends:
                config = self._config(values)
                engine.create_backend(
                    getattr(self.mori.BackendType, backend),
                    config if backend == "RDMA" else self.mori.XgmiBackendConfig(),
                )
            engines.append(engine)
            tensors.append(self.gpu_buffer(size))
            descs.append(self.register_gpu(engine, tensors[-1]))
        return self._pair(engines, tensors, descs)

    def gpu_buffer(self, size: int) -> Any:
        return torch.zeros(size, dtype=torch.uint8)

    def register_gpu(self, engine: Any, tensor: Any) -> Any:
        gpu = self.mori.MemoryLocationType.GPU
        return engine.register_memory(tensor.data_ptr(), tensor.numel(), 0, gpu)

    def transports(self, settings: Any) -> tuple[Any, Any, Any]:
        module = self._with_mori("connector.transport")
        consumer, producer = (
            self._in_process(process, module.Transport, process.node.ip, 7, name, settings)
            for name in ("consumer", "producer")
            for process in [self._new_process(name)]
        )
        return module, consumer, producer

    def _with_mori(self, name: str) -> Any:
        """A fresh copy of a module, which finds the simulated library where the real one is."""
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        mori = ModuleType("mori")
        with patch.dict(sys.modules, {"mori": mori, "mori.io": self.mori}):
            spec.loader.exec_module(module)
        return module

    def engine_without_rdma(self, key: str, *, fall_back: bool) -> Any:
        fabric = Fabric(self.kernel, replace(CX7, nics_per_node=0))
        environ = {"MORI_DISABLE_AUTO_XGMI": "0"} if fall_back else {}
        mori = make(self.kernel, fabric, environ)
        process = self._new_process(key)
        return self._in_process(process, mori.IOEngine, key, mori.IOEngineConfig("10.0.0.1", 7))

    def _config(self, values: dict[str, int]) -> Any:
        config = self.mori.RdmaBackendConfig()
        for name, value in values.items():
            setattr(config, name, value)
        return config

    def _new_node(self) -> Node:
        self._machines += 1
        return Node(f"n{self._machines}", f"10.0.0.{self._machines}")

    def _new_process(self, key: str) -> Process:
        process = Process(self._new_node(), "worker")
        self._keys[key] = process
        return process

    def _make_engine(self, key: str, port: int) -> Any:
        process = self._keys[key]
        return self.mori.IOEngine(key, self.mori.IOEngineConfig(process.node.ip, port))

    def _in_process(self, process: Process, function: Callable[..., Any], *args: Any) -> Any:
        results: list[Any] = []
        join = self._spawn(process, "main", lambda: results.append(function(*args)))
        join()
        return results[0]

    def _spawn(
        self, process: Process, name: str, function: Callable[[], None]
    ) -> Callable[[], None]:
        """Start a thread of ``process``; the result joins it."""
        done = self.kernel.event()

        def run() -> None:
            function()
            done.succeed()

        self.kernel.spawn(process, run, name=name)

        def join() -> None:
            self.kernel.wait(done)

        return join

    def seconds(self) -> float:
        return self.kernel.now_ns / SECOND

    def set_environment(self, name: str, value: str) -> None:
        self.mori = make(self.kernel, self.fabric, {name: value})

    def sleep(self, seconds: float) -> None:
        self.kernel.sleep(seconds_to_ns(seconds))

    def thread(self, function: Callable[[], None]) -> Callable[[], None]:
        process = self.kernel.require_task("a thread").process
        return self._spawn(process, "thread", function)

    # ------------------------------------------------------------ counting

    def posted(self, engine: Any) -> tuple[int, int]:
        key = engine.get_engine_desc().key
        posts = [
            record.fields["work_requests"]
            for record in self.kernel.log.records
            if record.kind == "posted" and record.fields["initiator"] == key
        ]
        return sum(posts), len(posts)

    def copies(self, engine: Any) -> int:
        key = engine.get_engine_desc().key
        return sum(
            record.fields["copies"]
            for record in self.kernel.log.records
            if record.kind == "copies-enqueued" and record.fields["initiator"] == key
        )

    def queue_pairs(self, engine: Any) -> int:
        return len(engine._backend.device.queue_pairs)

    def memory_regions(self, engine: Any) -> tuple[int, int]:
        device = engine._backend.device
        return len(device._regions), len(device.regions)

    # ----------------------------------------------------------- injection

    def _once(
        self, engine: Any, kind: type[Any], verdict: Callable[[Any], Verdict], n: int = 1
    ) -> None:
        key = engine.get_engine_desc().key

        def answer(item: Any) -> Verdict | None:
            mine = isinstance(item, kind) and item.pair.initiator == key
            return verdict(item) if mine else None

        self.fabric.verdicts.add(Once(answer, n))

    def fail_next(self, engine: Any, status: str, work_request: int) -> None:
        def answer(item: WorkRequestItem) -> Verdict:
            if work_request == item.count - 1:
                return Fail(status, "")
            return LandPart(tuple(range(work_request)), status)

        self._once(engine, WorkRequestItem, answer)

    def lose_next_completion(self, engine: Any) -> None:
        self._once(engine, CompletionItem, lambda item: Drop())

    def hold(self, engine: Any, seconds: float) -> None:
        release_ns = self.kernel.now_ns + seconds_to_ns(seconds)
        self._once(
            engine,
            CompletionItem,
            lambda item: Delay(max(0, release_ns - self.kernel.now_ns)),
            1_000_000,
        )

    def refuse_next_post(self, engine: Any, posted: int) -> None:
        self._once(engine, PostItem, lambda item: PostPart(posted))

    def refuse_next_notification(self, engine: Any) -> None:
        key = engine.get_engine_desc().key

        def answer(item: Any) -> Verdict | None:
            sends = isinstance(item, PostItem) and item.operation is Operation.SEND
            return Fail("ENOMEM", "") if sends and item.pair.initiator == key else None

        self.fabric.verdicts.add(Once(answer))

    def fail_next_notification(self, engine: Any, status: str) -> None:
        self._once(engine, SendItem, lambda item: Fail(status, ""))

    def fail_next_copy(self, engine: Any, kind: str) -> None:
        item = CopyItem if kind == "failed" else CopyPostItem
        code = "BAD_STATE" if kind == "no-stream" else ""
        self._once(engine, item, lambda item: Fail(code, "out of memory"))

    def raise_event(self, engine: Any, name: str) -> None:
        device = engine._backend.device
        queue_pair = device.queue_pairs[0] if name in _FATAL_TO_A_QUEUE_PAIR else None
        self.fabric.raise_event(device, name, queue_pair)

    def mute_target(self, pair: Pair) -> None:
        self._once(pair.initiator, ControlItem, lambda item: Drop(), 1_000_000)

    def crash_target(self, pair: Pair) -> None:
        self.kernel.crash(pair.target._process)

    def restart_target(self, pair: Pair) -> None:
        old, key = pair.target, pair.target._key
        process = Process(old._process.node, "worker", incarnation=1)
        self._keys[key] = process
        pair.target = self._in_process(process, self._make_engine, key, old._port)
        pair.target.create_backend(self.mori.BackendType.RDMA, self.mori.RdmaBackendConfig())
        pair.remote = torch.zeros_like(pair.remote)
        pair.remote_desc = pair.target.register_torch_tensor(pair.remote)


def run_on_sim(
    check: Callable[[Any], None],
    *,
    seed: int = 1,
    perturb: bool = False,
    profile: FabricProfile = CX7,
) -> None:
    """Run ``check`` as a thread of a simulated process; its exception is the caller's."""
    with Kernel(Seed(seed), perturb=perturb).running() as kernel:
        arm = SimArm(kernel, profile)
        done = kernel.event()

        def run() -> None:
            check(arm)
            done.succeed()

        kernel.spawn(
            Process(Node("n0", "10.0.0.250"), "test"),
            run,
            name="case",
        )
        kernel.run(until_ns=600 * SECOND)
        for failure in kernel.failures:
            raise failure.exception
        assert done.triggered, kernel.describe_waiters()
