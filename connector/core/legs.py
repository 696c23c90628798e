"""Decode legs that share one hold of a producer: it is released when the last of them is done.

Several samples of one prompt (n > 1), and hedged requests, read the same blocks. A consumer's rank
counts the legs that it has been told of. vLLM does not tell a consumer how many there will be: its
front end makes ``n`` requests of one, each with an ``n`` of 1, and only their ids show that they
are samples. So a hold that a sample has read is kept for a while after the last of them was done:
others may come yet, or wait behind a step that waited for its load.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SAMPLE = re.compile(r"\d+_")


def is_sample(request_id: str) -> bool:
    """Whether vLLM's front end has made a request as one of several samples (`ParentRequest`)."""
    return _SAMPLE.match(request_id) is not None


@dataclass
class _Legs:
    keep_until: float
    gap_s: float = 0.0
    """How long the hold is kept once nobody reads."""
    reading: dict[str, None] = field(default_factory=dict)


class LegCount(Generic[K]):
    """The legs of each hold, and the holds that are kept for legs which may yet come.

    Args:
        sample_gap_s: how long after a sample was done another one may come. Infinite where samples
            may go to consumers that do not hear of each other: their hold is left to end with its
            lease.
    """

    def __init__(self, sample_gap_s: float) -> None:
        self._sample_gap_s = sample_gap_s
        self._legs: dict[K, _Legs] = {}
        self._kept: dict[K, float] = {}
        """Holds without legs, and until when they are kept."""

    def __len__(self) -> int:
        return len(self._legs) + len(self._kept)

    def join(self, hold: K, leg: str, now: float, *, is_sample: bool) -> None:
        """A leg has come that may read."""
        legs = self._legs.setdefault(hold, _Legs(self._kept.pop(hold, now)))
        if is_sample:
            legs.gap_s = self._sample_gap_s
        legs.reading[leg] = None

    def leave(self, hold: K, leg: str, now: float) -> bool:
        """A leg is done; whether nobody reads now, so that the hold will be among those `due`."""
        legs = self._legs.setdefault(hold, _Legs(now))
        legs.reading.pop(leg, None)
        if legs.reading:
            return False
        del self._legs[hold]
        keep_until = max(legs.keep_until, now + legs.gap_s)
        if math.isfinite(keep_until):
            self._kept[hold] = keep_until
        return True

    def due(self, now: float) -> list[K]:
        """Holds that nobody reads, and nobody is expected to; each once."""
        if not self._kept:
            return []
        due = [hold for hold, until in self._kept.items() if until <= now]
        for hold in due:
            del self._kept[hold]
        return due

    def next_due(self) -> float | None:
        """When a hold is due; None if none will be by itself."""
        return min(self._kept.values(), default=None)
