"""Arguments of the workload functions, checked where a person can still read the message."""

from __future__ import annotations

import math

from sim.errors import UsageError


class WorkloadError(UsageError):
    """A workload was asked for that cannot be made. Names the argument and what is accepted."""


def check_count(name: str, value: int) -> None:
    """Refuse a count below 1."""
    if value < 1:
        raise WorkloadError(f"{name} is {value}, must be an integer, 1 or more")


def check_factor(name: str, value: float) -> None:
    """Refuse a factor that is not a positive finite number."""
    if not (math.isfinite(value) and value > 0):
        raise WorkloadError(f"{name} is {value}, must be a finite number above 0")


def check_range(name: str, bounds: tuple[int, int]) -> None:
    """Refuse bounds that are not 1 <= low <= high."""
    low, high = bounds
    if not 1 <= low <= high:
        raise WorkloadError(f"{name} is ({low}, {high}), must be (low, high), 1 <= low <= high")
