"""The settings that the connectors known by name take in ``kv_connector_extra_config``."""

from __future__ import annotations

from connector.core.keys import KEYS, Key

MORIIO = (
    Key("read_mode", "false"),
    Key("handshake_port", 6301, "port"),
    Key("notify_port", 61005, "port"),
    Key("host_ip", unit="address", note="vLLM's guess"),
    Key("http_port", unit="port", note="required"),
    Key("proxy_ip", "", "address"),
    Key("proxy_ping_port", 0, "port"),
    Key("backend", "rdma"),
    Key("qp_per_transfer", 1, "queue pairs"),
    Key("post_batch_size", -1, "work requests"),
    Key("num_workers", 1, "threads"),
    Key("transfer_timeout", 30.0, "s"),
    Key("defer_timeout", 60.0, "s"),
    Key("recv_abort_timeout", 120.0, "s"),
)
"""What vLLM 0.33.0's connector reads; a test compares this with its sources."""

_EXAMPLE = (Key("shared_storage_path", "/tmp", "path"),)
_SETTINGS = {"hybrid": KEYS, "moriio": MORIIO, "example": _EXAMPLE}


def settings_of(connector: str) -> tuple[Key, ...]:
    """The settings of a connector that is known by name, in the order in which it has them."""
    return _SETTINGS.get(connector, ())
