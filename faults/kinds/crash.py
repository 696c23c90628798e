"""Processes that vanish, and come back on the same address with new memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from faults.fault import Heal, LastingFault
from faults.scene import Scene

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class Crash(LastingFault, frozen=True, tag="crash"):
    """All processes of an engine, or that of one rank, vanish at once; a restart heals it.

    ``for_s`` is how long the engine stays away: it comes back on the same address, with new
    memory and an empty cache. The death of one rank ends the engine a millisecond later, and an
    engine takes the other data-parallel ranks of its instance with it.
    """

    takes: ClassVar[tuple[str, ...]] = ("node", "rank")

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name)
        if self.target.rank is None:
            engine.crash()
        else:
            engine.crash_rank(self.target.rank % engine.options.tp_size)
        ranks = [engine, *engine.group.others(engine)]
        return lambda: _restart(ranks)


def _restart(engines: Sequence[Engine]) -> None:
    """Those that are down; an engine that died by itself stays dead."""
    for engine in engines:
        if engine.was_crashed and not engine.alive:
            engine.restart()
