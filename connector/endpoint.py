"""A mori.io engine with this rank's memory registered; replaced when its connections break."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from connector.core.config import Settings
from connector.memory import CacheMemory
from connector.transport import Transport
from connector.wire import MemoryDescriptors


@dataclass(frozen=True, eq=False)
class Endpoint:
    """One engine and what is registered with it.

    Whoever holds a session or a status of the engine has to hold the endpoint as well, because
    the library does not keep the engine alive for them.

    Args:
        transport: the engine.
        local: the memory of each layer, and where in it the layer begins.
        descriptors: of all regions, as peers are told.
    """

    transport: Transport
    local: dict[str, tuple[Any, int]]
    descriptors: MemoryDescriptors


def open_endpoint(host_ip: str, name: str, settings: Settings, memory: CacheMemory) -> Endpoint:
    """A new engine under a fresh name, with new queue pairs to whomever it connects to.

    Raises:
        TransportError: the memory cannot be registered.
    """
    transport = Transport(host_ip, name, settings)
    whole = None if memory.backing is None else transport.register(memory.backing)
    local: dict[str, tuple[Any, int]] = {}
    descriptors: MemoryDescriptors = {}
    for layer in memory.layers:
        if whole is not None and not layer.is_state:
            registered = [whole]
        else:
            registered = [transport.register(region) for region in layer.regions]
        start = layer.regions[0].data_ptr()
        mine = registered[0] if whole is None else whole
        local[layer.name] = (mine, start - mine.data)
        descriptors[layer.name] = [region.pack() for region in registered]
    return Endpoint(transport, local, descriptors)
