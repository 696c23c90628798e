"""The keys of ``kv_connector_extra_config``: name, default and unit, for reading and for lists.

MoRIIO's keys keep their names and meanings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Key:
    """One key. ``default`` None: there is none; ``note`` says what is taken then."""

    name: str
    default: Any = None
    unit: str = ""
    note: str = ""


KEYS = (
    Key("read_mode", True),
    Key("handshake_port", unit="port", note="required"),
    Key("notify_port", unit="port", note="required"),
    Key("host_ip", unit="address", note="vLLM's guess"),
    Key("http_port", unit="port", note="needed with proxy_ip"),
    Key("proxy_ip", "", "address"),
    Key("proxy_ping_port", 0, "port"),
    Key("backend", "rdma"),
    Key("qp_per_transfer", 1, "queue pairs"),
    Key("post_batch_size", -1, "work requests"),
    Key("num_workers", 1, "threads"),
    Key("transfer_timeout", 30.0, "s"),
    Key("defer_timeout", 60.0, "s"),
    Key("renewal_timeout", 600.0, "s"),
    Key("fence_timeout", 30.0, "s"),
    Key("control_timeout", 0.5, "s"),
    Key("load_mode", "async"),
    Key("drafter_groups", "accept"),
    Key("require_safe_reads", False),
    Key("verify_reads", "off"),
    Key("recv_abort_timeout", unit="s", note="accepted, without a meaning here"),
)
LONGEST_S = 1_000_000
"""The longest duration that a key or a peer may give, in seconds; waits take no number at will."""
UNUSED_KEYS = ("recv_abort_timeout",)
"""Known to upstream, without a meaning here: a read has one deadline, ``transfer_timeout``."""
KNOWN_KEYS = tuple(key.name for key in KEYS)
DEFAULTS = {key.name: key.default for key in KEYS}
