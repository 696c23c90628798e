"""Loads that have ended on one rank, until the worker takes them.

The loader's thread adds, the worker's takes or waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import repeat

_PIECES = 16
_EXTRA_S = (1.0, 1.0)


class LoadResults:
    """Request ids of loads that are in place, and of loads that failed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._loaded: set[str] = set()
        self._failed: set[str] = set()

    def add(self, request_id: str, *, is_loaded: bool) -> None:
        with self._changed:
            (self._loaded if is_loaded else self._failed).add(request_id)
            self._changed.notify_all()

    def take(self) -> tuple[set[str], set[str]]:
        """Loads that have ended since the last call: all of them, and those that failed."""
        with self._changed:
            loaded, self._loaded = self._loaded, set()
            failed, self._failed = self._failed, set()
        return loaded | failed, failed

    def wait(self, request_ids: Iterable[str], timeout_s: float) -> tuple[set[str], set[str]]:
        """Wait for the end of loads and take their results: (loaded, failed).

        What is in neither has not ended two seconds after ``timeout_s``; its reads may still land.
        A process that stood still meanwhile loses only one piece of the time, and the loader has
        the others, at least a second, to find out what has come of its loads.
        """
        wanted = set(request_ids)
        with self._changed:
            for piece_s in (*repeat(timeout_s / _PIECES, _PIECES), *_EXTRA_S):
                if self._changed.wait_for(
                    lambda: wanted <= (self._loaded | self._failed), timeout=piece_s
                ):
                    break
            loaded, failed = self._loaded & wanted, self._failed & wanted
            self._loaded -= wanted
            self._failed -= wanted
        return loaded, failed
