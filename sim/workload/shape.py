"""The published shape of the Mooncake conversation trace, as quantile tables.

Source of the shape: "Mooncake: Trading More Storage for Less Computation" (Qin et al., FAST 2025)
and the trace published with it: prompts of 6,909 tokens at the median and 85,399 at the 99th
percentile, outputs of 350 at the median, timestamps on a grid of 3 s with about ten requests on
each point. The tables hold a few rounded quantiles, no data of the trace. Lengths of prompts and
outputs are drawn independently: in the trace they are nearly uncorrelated.

Everything is integer arithmetic, so a draw is the same on every machine.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Final

PARTS: Final = 1_000_000
"""A position in a distribution is an integer in [0, PARTS)."""

_STRATA: Final = 100


class QuantileTable:
    """A distribution of integers given by (per mille, value) knots, linear between them."""

    def __init__(self, *knots: tuple[int, int]) -> None:
        self._knots = [(per_mille * (PARTS // 1000), value) for per_mille, value in knots]

    def at(self, position: int) -> int:
        """The value below which ``position`` parts in PARTS of the distribution lie."""
        for (left, low), (right, high) in pairwise(self._knots):
            if position < right:
                return low + (high - low) * (position - left) // (right - left)
        raise ValueError(f"position is {position}, must be in [0, {PARTS})")


class StratifiedPositions:
    """Positions of which every hundred consecutive ones cover every per cent once.

    Plain draws would put the 99th percentile of 2,000 prompts off by 6 % or more in a third of
    all seeds. A shorter workload is still a prefix of a longer one.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._strata: list[int] = []

    def draw(self) -> int:
        """The next position."""
        if not self._strata:
            self._strata = list(range(_STRATA))
            self._rng.shuffle(self._strata)
        width = PARTS // _STRATA
        return self._strata.pop() * width + self._rng.randrange(width)


PROMPT_TOKENS: Final = QuantileTable(
    (0, 890),
    (50, 900),
    (100, 960),
    (250, 2_300),
    (500, 6_909),
    (750, 15_400),
    (900, 27_400),
    (950, 39_500),
    (990, 85_399),
    (1000, 126_000),
)
OUTPUT_TOKENS: Final = QuantileTable(
    (0, 1),
    (50, 10),
    (100, 24),
    (250, 156),
    (500, 350),
    (750, 472),
    (900, 597),
    (950, 700),
    (990, 1_118),
    (1000, 2_000),
)
BURST_REQUESTS: Final = QuantileTable(
    (0, 2), (250, 8), (500, 11), (750, 13), (900, 15), (990, 19), (1000, 29)
)
MEAN_BURST_REQUESTS: Final = 10.0
MEAN_RATE_RPS: Final = 3.4
"""Requests a second over the whole trace."""
