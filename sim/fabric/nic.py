"""A network card: two directions of bandwidth and a port that is up or down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel import Node

if TYPE_CHECKING:
    from sim.fabric.link import Flow


class Direction:
    """What a NIC can send, or receive, in bytes per nanosecond, and the flows that share it."""

    __slots__ = ("bytes_per_ns", "flows")

    def __init__(self, bytes_per_ns: float) -> None:
        self.bytes_per_ns = bytes_per_ns
        self.flows: list[Flow] = []


class Nic:
    """One port of a machine. Use the fabric's verbs to change its speed or state."""

    def __init__(self, node: Node, index: int, bytes_per_ns: float) -> None:
        self.node = node
        self.index = index
        self.line_bytes_per_ns = bytes_per_ns
        self.egress = Direction(bytes_per_ns)
        self.ingress = Direction(bytes_per_ns)
        self.port_up = True

    @property
    def device_name(self) -> str:
        """As an RDMA library lists it."""
        return f"mlx5_{self.index}"

    def set_speed(self, fraction: float) -> None:
        """Both directions carry ``fraction`` of the line rate from now on."""
        self.egress.bytes_per_ns = self.ingress.bytes_per_ns = self.line_bytes_per_ns * fraction
