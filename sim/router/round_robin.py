"""Which engine gets the next leg: each in turn, the dead ones left out."""

from __future__ import annotations

from collections.abc import Sequence

from sim.router.surroundings import FrontEnd


class RoundRobin:
    """Takes turns over the engines of one role."""

    def __init__(self, engines: Sequence[FrontEnd]) -> None:
        self._engines = list(engines)
        self._next = 0

    def pick(self, *, avoid: FrontEnd | None = None) -> FrontEnd | None:
        """The next living engine, None when there is none; ``avoid`` only if no other lives."""
        count = len(self._engines)
        order = [self._engines[(self._next + i) % count] for i in range(count)]
        living = [engine for engine in order if engine.alive]
        chosen = next((engine for engine in living if engine is not avoid), None)
        if chosen is None:
            chosen = living[0] if living else None
        if chosen is not None:
            self._next = (self._engines.index(chosen) + 1) % count
        return chosen
