"""Configuration objects of the library, and the environment variables that change its limits.

Of the settings here the simulator honours queue pairs per transfer, the post batch size and the
three queue limits; chunking, notifications, posting workers and several NICs per transfer are
accepted and have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.errors import UsageError
from sim.fabric.mori.enums import PollCqMode
from sim.units import MS, US

DEFAULT_SEND_QUEUE = 8192
DEFAULT_SEGMENTS_PER_WORK_REQUEST = 4


@dataclass(eq=False)
class IOEngineConfig:
    """Address of the engine's control plane; port 0 means any."""

    host: str = ""
    port: int = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "port" and not (isinstance(value, int) and 0 <= value <= 0xFFFF):
            raise TypeError(f"port must be an unsigned 16-bit integer, got {value!r}")
        super().__setattr__(name, value)


@dataclass(eq=False)
class RdmaBackendConfig:
    """How transfers use the NIC; the last three are attributes only, and 0 means built in."""

    qp_per_transfer: int = 1
    post_batch_size: int = -1
    num_worker_threads: int = -1
    poll_cq_mode: PollCqMode = PollCqMode.POLLING
    enable_notification: bool = True
    notif_per_qp: int = 1024
    enable_transfer_chunking: bool = False
    chunk_bytes: int = 65536
    max_chunks_per_transfer: int = 64
    num_nics_per_transfer: int = 1
    max_send_wr: int = field(default=0, init=False)
    max_cqe_num: int = field(default=0, init=False)
    max_msg_sge: int = field(default=0, init=False)

    def check(self) -> None:
        """Raise what the library raises when a backend is made with this."""
        for name, least in (
            ("chunk_bytes", 4096),
            ("max_chunks_per_transfer", 1),
            ("num_nics_per_transfer", 1),
            ("notif_per_qp", 1),
        ):
            if getattr(self, name) < least:
                raise RuntimeError(f"{name} must be at least {least}, got {getattr(self, name)}")


@dataclass(eq=False)
class XgmiBackendConfig:
    """Accepted; there is no XGMI backend here."""

    num_streams: int = 64
    num_events: int = 64


@dataclass(eq=False)
class FabricBackendConfig:
    """Accepted; there is no FABRIC backend here."""

    num_streams: int = 64
    num_events: int = 64


@dataclass(frozen=True)
class MoriSettings:
    """What the library reads from its environment."""

    send_queue_backoff_us: int = 5_000_000
    send_queue_limit: int | None = None
    control_timeout_ms: int = 5_000
    watch_async_events: bool = True
    fail_on_async_event: bool = True

    @property
    def send_queue_backoff_ns(self) -> int:
        """How long a posting call waits for room."""
        return self.send_queue_backoff_us * US

    @property
    def control_timeout_ns(self) -> int | None:
        """How long the control plane waits for an answer; None without limit."""
        return self.control_timeout_ms * MS if self.control_timeout_ms else None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> MoriSettings:
        """Settings from environment variables, defaults for those that are not there."""

        def number(name: str, default: int) -> int:
            text = environ.get(name, str(default))
            if not text.isdigit():
                raise UsageError(f"{name}={text!r}: expected a number such as {default}")
            return int(text)

        return cls(
            number("MORI_IO_SQ_BACKOFF_TIMEOUT_US", cls.send_queue_backoff_us),
            number("MORI_IO_QP_MAX_SEND_WR", 0) or None,
            number("MORI_IO_CP_TIMEOUT_MS", cls.control_timeout_ms),
            bool(number("MORI_IO_ENABLE_ASYNC_EVENTS", 1)),
            bool(number("MORI_IO_FAIL_ON_ASYNC_EVENT", 1)),
        )

    def send_queue_depth(self, config: RdmaBackendConfig) -> int:
        """Depth of a send queue: the environment, else the config, else the default."""
        return self.send_queue_limit or config.max_send_wr or DEFAULT_SEND_QUEUE
