"""Keeps faults of one kind that overlap from healing each other."""

from __future__ import annotations

from collections.abc import Hashable


class Overlaps:
    """Counts what is held up; the first to begin does it, and the last to end undoes it."""

    def __init__(self) -> None:
        self._depth: dict[Hashable, int] = {}

    def begin(self, what: Hashable) -> bool:
        """One more holds ``what``; whether it is the first."""
        self._depth[what] = self._depth.get(what, 0) + 1
        return self._depth[what] == 1

    def end(self, what: Hashable) -> bool:
        """One holds it no more; whether it was the last."""
        self._depth[what] -= 1
        return not self._depth[what]
