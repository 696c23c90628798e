"""What a request's output must be: the colocated run as a pure function of the prompt.

A colocated engine of the same model generates exactly these tokens; that equality is shown by
tests that run one, over every preset and engine variant.
"""

from __future__ import annotations

import numpy.typing as npt

from sim.model.content import next_prefix_hash, next_token, prefix_hashes


def continuation(prompt: npt.ArrayLike, count: int, vocab_size: int) -> list[int]:
    """The first ``count`` tokens that follow ``prompt`` (token ids, at least one)."""
    hashes = prefix_hashes(prompt)
    position, current = len(hashes), int(hashes[-1])
    tokens: list[int] = []
    for _ in range(count):
        token = next_token(current, 0, vocab_size)
        tokens.append(token)
        current = next_prefix_hash(current, position, token)
        position += 1
    return tokens
