"""mori.io engines with this rank's memory registered: the one that reads go through, one for peers
whose reads have failed, and those that are given up, as reads through them failed or did not end.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from connector.core.config import Settings
from connector.counters import Counters
from connector.logs import log
from connector.memory import CacheMemory
from connector.transport import Transport
from connector.wire import MemoryDescriptors

_ANY_PORT = 0  # one that was looked for before could be another rank's by the time it is opened


@dataclass(eq=False)
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
    is_quiet: bool = False
    """Whether no read through it can land any more."""

    def close(self) -> None:
        """Destroy its queue pairs. Statuses of reads that were under way stay as they are."""
        self.is_quiet = self.transport.close()


class Endpoints:
    """A consumer rank's endpoints. Used by the loader's thread alone.

    Peers share one engine, because each keeps a core busy. A read that fails or does not end says
    that some queue pair is of no use any more, which the library never repairs; what is more,
    its bytes may still land. So the whole engine is given up: new loads go through a new one, and
    the old one is closed when the other reads through it have ended.

    A peer whose reads have failed is on trial: its next ones go through another engine. The library
    never takes down what it has set up for an engine that is gone at the other side, so a peer that
    goes on to fail must not make those that all is well with connect anew each time.

    Args:
        make: a new endpoint.
        counters: of this rank.
        rank: of tensor parallelism.

    Raises:
        TransportError: the memory cannot be registered.
    """

    def __init__(self, make: Callable[[], Endpoint], counters: Counters, rank: int) -> None:
        self._make = make
        self._counters = counters
        self._current: Endpoint | None = make()
        self._trial: Endpoint | None = None
        self._retired: list[Endpoint] = []
        self._log = log.bind(role="consumer", half="worker", rank=rank)

    def current(self, *, on_trial: bool) -> Endpoint:
        """The one for new reads.

        Raises:
            TransportError: there is none, and the memory cannot be registered with a new one.
        """
        if on_trial:
            self._trial = self._trial or self._make()
            return self._trial
        self._current = self._current or self._make()
        return self._current

    def passed(self, endpoint: Endpoint) -> None:
        """Reads of a peer on trial have succeeded."""
        if endpoint is not self._trial:
            return
        self._trial = None
        if self._current is None:
            self._current = endpoint
        else:
            self._retired.append(endpoint)

    def retire(self, endpoint: Endpoint, *, peer: str, reason: str) -> None:
        """Use an endpoint for no new read."""
        if endpoint is self._current:
            self._current = None
        elif endpoint is self._trial:
            self._trial = None
        else:
            return
        self._retired.append(endpoint)
        self._counters.add("renewed_connections")
        self._log.warning("connections-renewed", peer=peer, reason=reason)

    def close_retired(self, in_use: Container[Endpoint | None]) -> None:
        """Close those that are retired and not in use. One that cannot be closed is let go of: what
        was read through it waits until its fences end by themselves."""
        unused = [endpoint for endpoint in self._retired if endpoint not in in_use]
        self._retired = [endpoint for endpoint in self._retired if endpoint in in_use]
        for endpoint in unused:
            try:
                endpoint.close()
            except Exception as error:
                self._log.warning("connections-not-closed", reason=repr(error))


def open_endpoint(host_ip: str, name: str, settings: Settings, memory: CacheMemory) -> Endpoint:
    """A new engine under a fresh name, with new queue pairs to whomever it connects to.

    Raises:
        TransportError: the memory cannot be registered.
    """
    transport = Transport(host_ip, _ANY_PORT, name, settings)
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
