"""What one rank, or one scheduler half, counts; handed to vLLM with each step's results."""

from __future__ import annotations

import threading
from typing import Any


class Counters:
    """Counts and observations by name; safe to use from several threads. What the names mean is
    in `connector.metrics`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data: dict[str, Any] = {}

    def add(self, name: str, amount: int = 1) -> None:
        if amount:
            with self._lock:
                self._data[name] = self._data.get(name, 0) + amount

    def set(self, name: str, value: int) -> None:
        """The present value of a gauge."""
        with self._lock:
            self._data[name] = value

    def observe(self, name: str, value: float) -> None:
        """One value of a histogram."""
        with self._lock:
            self._data.setdefault(name, []).append(value)

    def take(self) -> dict[str, Any]:
        """What was added, set and observed since the last call."""
        if not self._data:  # in nearly every step
            return {}
        with self._lock:
            data, self._data = self._data, {}
            return data
