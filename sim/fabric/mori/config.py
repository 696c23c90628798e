"""Configuration objects of the library.

Accepted without the effect they have on hardware: several NICs per transfer (an engine has one;
posting workers are not used, as in the library), the length of completion queues, and the way
completions are waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.fabric.mori.enums import PollCqMode

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
    """How many copy streams and events each GPU has; more events are made when they run out."""

    num_streams: int = 64
    num_events: int = 64


@dataclass(eq=False)
class FabricBackendConfig:
    """Accepted; there is no FABRIC backend here."""

    num_streams: int = 64
    num_events: int = 64
