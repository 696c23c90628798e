"""How findings put numbers into words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sim.units import ns_to_seconds

_SHOWN_RUNS = 6


def seconds(time_ns: int) -> str:
    """A point in virtual time."""
    return f"{ns_to_seconds(time_ns):.6f} s"


def block_list(block_ids: Sequence[int]) -> str:
    """``block 7``, or ``blocks 3-9, 12`` for several; long lists are cut."""
    if len(block_ids) == 1:
        return f"block {block_ids[0]}"
    runs = []
    for _, group in groupby(enumerate(block_ids), lambda pair: pair[1] - pair[0]):
        run = [block for _, block in group]
        runs.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}")
    more = f" and {len(runs) - _SHOWN_RUNS} more runs" if len(runs) > _SHOWN_RUNS else ""
    return f"blocks {', '.join(runs[:_SHOWN_RUNS])}{more}"
