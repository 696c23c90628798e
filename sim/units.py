"""Integer nanoseconds and bytes: conversions at the border to code that speaks seconds."""

from __future__ import annotations

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

KIB = 1024
MIB = 1024 * 1024


def seconds_to_ns(seconds: float) -> int:
    """Nearest nanosecond; negative durations, which callers of sleep() may pass, become 0."""
    return max(0, round(seconds * SECOND))


def ns_to_seconds(ns: int) -> float:
    return ns / SECOND
