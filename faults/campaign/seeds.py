"""Which seeds a campaign runs: ``N``, ``A:B``, a share of them, and for how long."""

from __future__ import annotations

import re

from sim.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0}


def parse_seeds(text: str) -> range:
    """``N`` is the first N seeds, ``A:B`` those from A up to and without B."""
    match = re.fullmatch(r"(?:(\d{1,18}):)?(\d{1,18})", text)
    seeds = range(int(match[1] or 0), int(match[2])) if match else range(0)
    if not seeds:
        raise UsageError(
            f"--seeds {text}: expected N, or A:B with A below B, such as 100 or 50:80; of 18 "
            "digits at most"
        )
    return seeds


def parse_shard(text: str | None) -> tuple[int, int]:
    """``I/N`` is part I of N equal ones, counted from 1; all of them without."""
    match = re.fullmatch(r"(\d+)/(\d+)", text or "1/1")
    part, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= part <= parts:
        raise UsageError(f"--shard {text}: expected I/N with I from 1 to N, such as 2/4")
    return part, parts


def share(seeds: range, shard: tuple[int, int]) -> range:
    """Every N-th seed, so that shards are alike; together they are all seeds, none twice."""
    part, parts = shard
    return seeds[part - 1 :: parts]


def parse_duration(text: str) -> float:
    """Seconds in ``90s``, ``10m`` or ``1.5h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not seconds:
        raise UsageError(f"--budget {text}: expected a duration, such as 90s, 10m or 1h")
    return seconds
