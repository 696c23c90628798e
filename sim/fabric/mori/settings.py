"""What the library reads from its environment: limits, and values that override configurations.

As in the library, a value outside a variable's range is ignored. One that is no number at all is
refused, because whoever wrote it meant something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.errors import UsageError
from sim.fabric.mori.config import DEFAULT_SEND_QUEUE, RdmaBackendConfig
from sim.fabric.mori.enums import PollCqMode
from sim.fabric.timers import Timers
from sim.units import MS, US

_MOST_CONTROL_TIMEOUT_MS = 86_400_000
_WORDS = {"true": 1, "on": 1, "yes": 1, "false": 0, "off": 0, "no": 0}

_OVERRIDES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "MORI_IO_QP_PER_TRANSFER": ("qp_per_transfer", int),
    "MORI_IO_POST_BATCH_SIZE": ("post_batch_size", int),
    "MORI_IO_NUM_WORKER_THREADS": ("num_worker_threads", int),
    "MORI_IO_POLL_CQ_MODE": ("poll_cq_mode", PollCqMode),
    "MORI_IO_ENABLE_NOTIFICATION": ("enable_notification", bool),
    "MORI_IO_ENABLE_CHUNKING": ("enable_transfer_chunking", bool),
    "MORI_IO_CHUNK_BYTES": ("chunk_bytes", int),
    "MORI_IO_MAX_CHUNKS": ("max_chunks_per_transfer", int),
    "MORI_IO_NUM_NICS_PER_TRANSFER": ("num_nics_per_transfer", int),
    "MORI_IO_QP_MAX_SGE": ("max_msg_sge", int),
    "MORI_IO_QP_MAX_MSG_SGE": ("max_msg_sge", int),
}
_TIMERS = {
    "timeout": ("QP_TIMEOUT", 31),
    "retry_count": ("QP_RETRY_CNT", 7),
    "min_rnr_timer": ("QP_MIN_RNR_TIMER", 31),
    "rnr_retry": ("QP_RNR_RETRY", 7),
}


@dataclass(frozen=True)
class MoriSettings:
    """Values of the environment, or the library's defaults."""

    send_queue_backoff_us: int = 5_000_000
    send_queue_limit: int | None = None
    control_timeout_ms: int = 5_000
    watch_async_events: bool = True
    fail_on_async_event: bool = True
    node_id: str = ""
    falls_back_to_xgmi: bool = False
    gather_threshold: int | None = None
    """More copies than this in one XGMI call are one kernel launch; None for never."""
    timers: Timers | None = None
    """Of queue pairs, where the environment names any; otherwise the profile's."""
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def send_queue_backoff_ns(self) -> int:
        """How long a posting call waits for room."""
        return self.send_queue_backoff_us * US

    @property
    def control_timeout_ns(self) -> int | None:
        """How long the control plane waits for an answer; None without limit."""
        return self.control_timeout_ms * MS if self.control_timeout_ms else None

    def send_queue_depth(self, config: RdmaBackendConfig) -> int:
        """Depth of a send queue: the environment, else the config, else the default."""
        return self.send_queue_limit or config.max_send_wr or DEFAULT_SEND_QUEUE

    def applied_to(self, config: RdmaBackendConfig) -> RdmaBackendConfig:
        """A backend's own copy of what its creator asked for, with the overrides in it."""
        applied = RdmaBackendConfig()
        for name, value in {**vars(config), **self.overrides}.items():
            setattr(applied, name, value)
        return applied

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> MoriSettings:
        """Settings from environment variables, defaults for those that are not there."""
        number = _Numbers(environ)
        threshold = "MORI_IO_XGMI_SCATTER_GATHER_THRESHOLD"
        return cls(
            number("MORI_IO_SQ_BACKOFF_TIMEOUT_US", cls.send_queue_backoff_us),
            number("MORI_IO_QP_MAX_SEND_WR", 0) or None,
            number("MORI_IO_CP_TIMEOUT_MS", cls.control_timeout_ms, 0, _MOST_CONTROL_TIMEOUT_MS),
            bool(number("MORI_IO_ENABLE_ASYNC_EVENTS", 1)),
            bool(number("MORI_IO_FAIL_ON_ASYNC_EVENT", 1)),
            environ.get("MORI_NODE_ID", ""),
            environ.get("MORI_DISABLE_AUTO_XGMI", "1").startswith("0"),
            number(threshold, 0) if threshold in environ else None,
            _timers(environ, number),
            _overrides(environ, number),
        )


class _Numbers:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, name: str, default: int, least: int = 0, most: int = 2**31 - 1) -> int:
        text = self._environ.get(name, str(default)).strip().lower()
        try:
            value = _WORDS[text] if text in _WORDS else int(text)
        except ValueError:
            raise UsageError(f"{name}={text!r}: expected a number such as {default}") from None
        return value if least <= value <= most else default


def _timers(environ: Mapping[str, str], number: _Numbers) -> Timers | None:
    found: dict[str, int] = {}
    for attribute, (suffix, most) in _TIMERS.items():
        for name in (f"MORI_RDMA_{suffix}", f"MORI_IO_{suffix}"):
            if name in environ:
                default = found.get(attribute, getattr(Timers(), attribute))
                found[attribute] = number(name, default, 0, most)
    return Timers(**found) if found else None


def _overrides(environ: Mapping[str, str], number: _Numbers) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (attribute, kind) in _OVERRIDES.items():
        if name in environ:
            default = getattr(RdmaBackendConfig(), attribute)
            least = -1 if attribute == "post_batch_size" else int(kind is int)
            found[attribute] = kind(number(name, int(default), least))
    return found
