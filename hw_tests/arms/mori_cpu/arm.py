"""The real library as an arm of the conformance suite: two engines of one process, no GPU.

Runs only under the interpreter and the library path that ``build`` has prepared.
"""

from __future__ import annotations

import ctypes
from typing import Any

from hw_tests.arms.real import RealArm, key_of

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
    "COMM_EST": 4,
    "SQ_DRAINED": 5,
    "PATH_MIG": 6,
    "PATH_MIG_ERR": 7,
    "DEVICE_FATAL": 8,
    "PORT_ACTIVE": 9,
    "PORT_ERR": 10,
    "LID_CHANGE": 11,
    "PKEY_CHANGE": 12,
    "SM_CHANGE": 13,
    "QP_LAST_WQE_REACHED": 16,
    "CLIENT_REREGISTER": 17,
    "GID_CHANGE": 18,
}
_ASKED = (
    *("max_send_wr", "max_recv_wr", "max_cqe", "max_sge", "max_inline", "path_mtu", "hop_limit"),
    *("min_rnr_timer", "timeout", "retry_count", "rnr_retry", "max_rd_atomic", "region_access"),
)


class _Asked(ctypes.Structure):
    """struct asked of verbs.c."""

    _fields_ = [(name, ctypes.c_uint32) for name in _ASKED]  # as ctypes has it


class MoriCpuArm(RealArm):
    """Engines of the real library over the scripted verbs provider (verbs.c)."""

    def __init__(self) -> None:
        super().__init__()
        self._verbs = ctypes.CDLL("libibverbs.so.1")
        for name in ("requests", "posts", "queue_pairs", "regions", "regions_left"):
            getattr(self._verbs, f"script_{name}").restype = ctypes.c_uint64
        self._verbs.script_asked.restype = _Asked
        self._verbs.script_hold.argtypes = [ctypes.c_int, ctypes.c_double]
        self._owners: dict[str, int] = {}

    def _prepare_backend(self, engine: Any) -> None:
        self._owners[key_of(engine)] = len(self._owners)
        self._verbs.script_owner(self._owners[key_of(engine)])

    def engine_without_rdma(self, key: str, *, fall_back: bool) -> Any:
        assert not fall_back, "XGMI needs GPUs"
        self._verbs.script_set_devices(0)
        return self.engine(key)

    # ------------------------------------------------------------ counting

    def posted(self, engine: Any) -> tuple[int, int]:
        owner = self._owner(engine)
        return self._verbs.script_requests(owner), self._verbs.script_posts(owner)

    def queue_pairs(self, engine: Any) -> int:
        return int(self._verbs.script_queue_pairs(self._owner(engine)))

    def memory_regions(self, engine: Any) -> tuple[int, int]:
        owner = self._owner(engine)
        return self._verbs.script_regions(owner), self._verbs.script_regions_left(owner)

    def asked_of_the_nic(self, engine: Any) -> dict[str, int]:
        asked = self._verbs.script_asked(self._owner(engine))
        return {name: getattr(asked, name) for name in _ASKED}

    def _owner(self, engine: Any) -> int:
        return self._owners[key_of(engine)]

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
        result = self._verbs.script_event(self._owner(engine), _EVENTS[name])
        assert result == 0, f"{name}: needs a queue pair of the engine; make a session first"
