"""Counters of one rank, handed to vLLM with each step's results."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Counts events by name; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        if not amount:
            return
        with self._lock:
            self._counts[name] += amount

    def take(self) -> dict[str, int]:
        """What was counted since the last call."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            return dict(counts)
