"""Token ids as a function of (seed, content id, index), without state.

The generator is splitmix64 (Steele, Lea, Flood, OOPSLA 2014) used as a counter: any range of any
content can be made at any time, in any order, in any process, and is always the same. It does
not imitate the statistics of text.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

DEFAULT_VOCAB_SIZE: Final = 32_000
FIRST_CONTENT_TOKEN: Final = 16
"""Ids below this one are reserved for begin, stop and other special tokens."""

_GAMMA: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_MASK: Final = (1 << 64) - 1


def content_token_ids(
    content_id: int, n_tokens: int, *, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE
) -> npt.NDArray[np.int32]:
    """The first ``n_tokens`` ids of a content, each in [FIRST_CONTENT_TOKEN, vocab_size)."""
    if vocab_size <= FIRST_CONTENT_TOKEN:
        raise ValueError(
            f"vocab_size is {vocab_size}, must be above {FIRST_CONTENT_TOKEN}: "
            f"ids 0 to {FIRST_CONTENT_TOKEN - 1} are reserved"
        )
    key = _mix_int(_mix_int(seed) ^ (content_id & _MASK))
    counters = np.arange(1, n_tokens + 1, dtype=np.uint64)
    draws = _mix_array(np.uint64(key) + counters * np.uint64(_GAMMA))
    # The high half: of the two, it is mixed better.
    ids = (draws >> np.uint64(32)) % np.uint64(vocab_size - FIRST_CONTENT_TOKEN)
    return (ids + np.uint64(FIRST_CONTENT_TOKEN)).astype(np.int32)


def _mix_int(value: int) -> int:
    """One splitmix64 output for the state ``value``."""
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _mix_array(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64 over an array; unsigned overflow wraps, as it must."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MIX_2)
    return values ^ (values >> np.uint64(31))
