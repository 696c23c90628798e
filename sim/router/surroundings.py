"""What the router needs of the world and of engines, and how it learns what outputs do not tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sim.engine.connectors import SideChannel
from sim.engine.options import EngineOptions
from sim.kernel import Kernel
from sim.probes import Probe, Probes


class FrontEnd(Protocol):
    """What the router needs of an engine (sim.engine.engine.Engine)."""

    name: str
    alive: bool
    options: EngineOptions
    data_parallel_rank: int
    on_output: Any

    @property
    def side_channel(self) -> SideChannel | None:
        """Where its connector listens; None without a connector."""

    def add_request(self, request: Any) -> None:
        """Send a request (EngineCoreRequest)."""

    def abort(self, request_ids: list[str]) -> None:
        """Ask to give up requests."""


class Surroundings(Protocol):
    """What the router needs of the world (sim.world.World)."""

    kernel: Kernel
    probes: Probes
    vocab_size: int


class EngineWatch(Probe):
    """Tells the router of allocations and of deaths, as a real one's health checks would."""

    def __init__(self, on_blocks: Callable[[str], None], on_death: Callable[[str], None]) -> None:
        self._on_blocks = on_blocks
        self._on_death = on_death

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        """A leg got blocks."""
        self._on_blocks(request_id)

    def engine_died(
        self, node: str, reason: str, *, injected: bool, traceback: Sequence[str]
    ) -> None:
        """An engine is gone."""
        self._on_death(node)
