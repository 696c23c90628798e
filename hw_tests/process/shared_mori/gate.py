"""Keeps reads under way until a test has done what it wants to do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

_LOOK_S = 0.005


class Gate:
    """Open at first. Transfers stop at it between their first bytes and their last."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = True
        self.waiting = 0
        """Transfers that are at the gate now."""

    def set_open(self, is_open: bool) -> None:
        with self._changed:
            self._is_open = is_open
            self._changed.notify_all()

    def passes(self, is_over: Callable[[], bool]) -> bool:
        """Wait for the gate; False if ``is_over`` came first."""
        with self._changed:
            self.waiting += 1
            try:
                while not self._is_open and not is_over():
                    self._changed.wait(_LOOK_S)
            finally:
                self.waiting -= 1
        return not is_over()


GATE = Gate()
"""Of this process."""
