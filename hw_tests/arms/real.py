"""What arms of the real library have in common: two engines of one process, over its own verbs.

Stays within Python 3.10, for which the wheel without a GPU is built.
"""

from __future__ import annotations

import ctypes
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mori import cpp as mori_cpp
from mori import io as mori_io

from connector import transport
from hw_tests.conformance.arm import Pair

_HOST = "127.0.0.1"
_THREADS = "/proc/self/task"
_LOOKS = 20
_BETWEEN_LOOKS_S = 0.02


class RealArm:
    """Engines of the library that is installed; a process in which they are is for one case."""

    mori = mori_io
    transfer_status = mori_cpp.TransferStatus

    def __init__(self) -> None:
        self._num_pairs = 0
        self._mute: list[socket.socket] = []

    # ---------------------------------------------------- engines and time

    def engine(self, key: str) -> Any:
        return mori_io.IOEngine(key, mori_io.IOEngineConfig(_HOST, 0))

    def pair(
        self, size: int = 1 << 20, *, target: dict[str, int] | None = None, **config: int
    ) -> Pair:
        initiator = {"enable_notification": 0, **config}
        configs = [initiator, {**initiator, **(target or {})}]
        return self._pair(lambda number: self._buffer(size), ("RDMA",), configs)

    def _pair(
        self,
        make_buffer: Callable[[int], Any],
        backends: tuple[str, ...],
        configs: list[dict[str, int]],
    ) -> Pair:
        """``make_buffer`` is called with 0 for the initiator and 1 for the target."""
        engines, tensors, descs = [], [], []
        self._num_pairs += 1
        for number, values in enumerate(configs):
            role = ("initiator", "target")[number]
            engine = self.engine(f"{role}-{self._num_pairs}")
            for backend in backends:
                self._create_backend(engine, backend, values)
            engines.append(engine)
            tensors.append(make_buffer(number))
            descs.append(engine.register_torch_tensor(tensors[-1]))
        for engine, other in (engines, engines[::-1]):
            engine.register_remote_engine(other.get_engine_desc())
        return Pair(*engines, *tensors, *descs)

    def _buffer(self, size: int) -> Any:
        """Zeroed bytes of the host."""
        return torch.zeros(size, dtype=torch.uint8)

    def _prepare_backend(self, engine: Any) -> None:
        """What has to be done before ``engine`` opens its devices."""

    def _create_backend(self, engine: Any, backend: str, values: dict[str, int]) -> None:
        kind = getattr(mori_io.BackendType, backend)
        if backend == "XGMI":
            engine.create_backend(kind, mori_io.XgmiBackendConfig())
            return
        config = mori_io.RdmaBackendConfig()
        for name, value in values.items():
            setattr(config, name, value)
        self._prepare_backend(engine)
        engine.create_backend(kind, config)

    def seconds(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def thread(self, function: Callable[[], None]) -> Callable[[], None]:
        thread = threading.Thread(target=function)
        thread.start()
        return thread.join

    def set_environment(self, name: str, value: str) -> None:
        os.environ[name] = value

    def sleepless_threads(self) -> int:
        looks = []
        for _ in range(_LOOKS):
            time.sleep(_BETWEEN_LOOKS_S)
            looks.append(_runnable())
        return len(set.intersection(*looks))

    def written(self, function: Callable[[], None]) -> str:
        with tempfile.TemporaryFile() as file:
            kept = [(number, os.dup(number)) for number in (1, 2)]
            for number, _copy in kept:
                os.dup2(file.fileno(), number)
            try:
                function()
            finally:
                ctypes.CDLL(None).fflush(None)  # the library writes through C's own buffers
                for number, copy in kept:
                    os.dup2(copy, number)
                    os.close(copy)
            file.seek(0)
            return file.read().decode(errors="replace")

    def num_threads(self) -> int:
        return len(os.listdir(_THREADS))

    def transports(self, settings: Any) -> tuple[Any, Any, Any]:
        make = transport.Transport
        consumer, producer = (
            make(_HOST, _free_port(), name, settings) for name in ("consumer", "producer")
        )
        return transport, consumer, producer

    # --------------------------------------------------- the target's process

    def crash_target(self, pair: Pair) -> None:
        """Queue pairs and listening port are gone; what is in flight never lands."""
        pair.target.remove_backend(mori_io.BackendType.RDMA)

    def restart_target(self, pair: Pair) -> None:
        desc = pair.target.get_engine_desc()
        config = mori_io.IOEngineConfig(_HOST, desc.port)
        pair.target = mori_io.IOEngine(desc.key, config)
        self._create_backend(pair.target, "RDMA", {})
        pair.remote = torch.zeros_like(pair.remote)
        pair.remote_desc = pair.target.register_torch_tensor(pair.remote)

    def mute_target(self, pair: Pair) -> None:
        """Something else listens on the target's port and says nothing."""
        port = pair.target.get_engine_desc().port
        self.crash_target(pair)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
        listener.listen()
        self._mute.append(listener)


def _runnable() -> set[tuple[str, str]]:
    """Threads of this process that run or only wait for a processor, and how often each of them
    has slept: one that did between two looks is another one in the second."""
    found = set()
    for thread in os.listdir(_THREADS):
        try:
            lines = Path(_THREADS, thread, "status").read_text().splitlines()
        except OSError:  # it has ended
            continue
        told = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
        if told["State"][0] == "R":
            found.add((thread, told["voluntary_ctxt_switches"][0]))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def key_of(engine: Any) -> str:
    return str(engine.get_engine_desc().key)
