"""The real library as an arm of the conformance suite: two engines of one process, no GPU.

Runs only under the interpreter and the library path that ``build`` has prepared.
"""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from mori import cpp as mori_cpp
from mori import io as mori_io

from hw_tests.conformance.arm import Pair

# Numbers of enum ibv_wc_status and enum ibv_event_type that cases use.
_WC_STATUS = {
    "LOC_LEN": 1,
    "LOC_QP_OP": 2,
    "LOC_PROT": 4,
    "WR_FLUSH": 5,
    "MW_BIND": 6,
    "BAD_RESP": 7,
    "LOC_ACCESS": 8,
    "REM_INV_REQ": 9,
    "REM_ACCESS": 10,
    "REM_OP": 11,
    "RETRY_EXC": 12,
    "RNR_RETRY_EXC": 13,
}
_EVENTS = {
    "CQ_ERR": 0,
    "QP_FATAL": 1,
    "QP_REQ_ERR": 2,
    "QP_ACCESS_ERR": 3,
    "SQ_DRAINED": 5,
    "DEVICE_FATAL": 8,
    "PORT_ACTIVE": 9,
    "PORT_ERR": 10,
    "GID_CHANGE": 18,
}
_HOST = "127.0.0.1"


class MoriCpuArm:
    """Engines of the real library over the scripted verbs provider (verbs.c)."""

    mori = mori_io
    transfer_status = mori_cpp.TransferStatus

    def __init__(self) -> None:
        self._verbs = ctypes.CDLL("libibverbs.so.1")
        for name in ("requests", "posts", "queue_pairs"):
            getattr(self._verbs, f"script_{name}").restype = ctypes.c_uint64
        self._verbs.script_hold.argtypes = [ctypes.c_int, ctypes.c_double]
        self._owners: dict[str, int] = {}
        self._num_engines = 0
        self._mute: list[socket.socket] = []

    # ---------------------------------------------------- engines and time

    def engine(self, key: str) -> Any:
        return mori_io.IOEngine(key, mori_io.IOEngineConfig(_HOST, 0))

    def pair(
        self, size: int = 1 << 20, *, target: dict[str, int] | None = None, **config: int
    ) -> Pair:
        engines, tensors, descs = [], [], []
        config = {"enable_notification": 0, **config}
        self._num_engines += 1
        for role, values in (("initiator", config), ("target", {**config, **(target or {})})):
            engine = self.engine(f"{role}-{self._num_engines}")
            self._create_backend(engine, values)
            engines.append(engine)
            tensors.append(torch.zeros(size, dtype=torch.uint8))
            descs.append(engine.register_torch_tensor(tensors[-1]))
        for engine, other in (engines, engines[::-1]):
            engine.register_remote_engine(other.get_engine_desc())
        return Pair(*engines, *tensors, *descs)

    def _create_backend(self, engine: Any, values: dict[str, int]) -> None:
        config = mori_io.RdmaBackendConfig()
        for name, value in values.items():
            setattr(config, name, value)
        self._owners[_key(engine)] = len(self._owners)
        self._verbs.script_owner(self._owners[_key(engine)])
        engine.create_backend(mori_io.BackendType.RDMA, config)

    def engine_without_rdma(self, key: str, *, fall_back: bool) -> Any:
        assert not fall_back, "XGMI needs GPUs"
        self._verbs.script_set_devices(0)
        return self.engine(key)

    def seconds(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def thread(self, function: Callable[[], None]) -> Callable[[], None]:
        thread = threading.Thread(target=function)
        thread.start()
        return thread.join

    # ------------------------------------------------------------ counting

    def posted(self, engine: Any) -> tuple[int, int]:
        owner = self._owner(engine)
        return self._verbs.script_requests(owner), self._verbs.script_posts(owner)

    def queue_pairs(self, engine: Any) -> int:
        return int(self._verbs.script_queue_pairs(self._owner(engine)))

    def _owner(self, engine: Any) -> int:
        return self._owners[_key(engine)]

    # ----------------------------------------------------------- injection

    def fail_next(self, engine: Any, status: str, work_request: int) -> None:
        self._verbs.script_fail(self._owner(engine), _WC_STATUS[status], work_request)

    def lose_next_completion(self, engine: Any) -> None:
        self._verbs.script_lose(self._owner(engine))

    def hold(self, engine: Any, seconds: float) -> None:
        self._verbs.script_hold(self._owner(engine), seconds)

    def fail_next_notification(self, engine: Any, status: str) -> None:
        self._verbs.script_fail_send(self._owner(engine), _WC_STATUS[status])

    def refuse_next_post(self, engine: Any, posted: int) -> None:
        self._verbs.script_refuse(self._owner(engine), posted)

    def refuse_next_notification(self, engine: Any) -> None:
        self._verbs.script_refuse_send(self._owner(engine))

    def raise_event(self, engine: Any, name: str) -> None:
        self._verbs.script_event(self._owner(engine), _EVENTS[name])

    def crash_target(self, pair: Pair) -> None:
        """Queue pairs and listening port are gone; what is in flight never lands."""
        pair.target.remove_backend(mori_io.BackendType.RDMA)

    def restart_target(self, pair: Pair) -> None:
        desc = pair.target.get_engine_desc()
        config = mori_io.IOEngineConfig(_HOST, desc.port)
        pair.target = mori_io.IOEngine(desc.key, config)
        self._create_backend(pair.target, {})
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


def _key(engine: Any) -> str:
    return str(engine.get_engine_desc().key)
