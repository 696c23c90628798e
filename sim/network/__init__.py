"""Connections between simulated nodes, and what can go wrong on them."""

from sim.network.connection import Endpoint
from sim.network.directory import ANY_HOST, LOOPBACK_HOST, Directory, Hello, Listener
from sim.network.message import Frames, MessageInFlight, digest_of, size_of
from sim.network.network import Network

__all__ = [
    "ANY_HOST",
    "LOOPBACK_HOST",
    "Directory",
    "Endpoint",
    "Frames",
    "Hello",
    "Listener",
    "MessageInFlight",
    "Network",
    "digest_of",
    "size_of",
]
