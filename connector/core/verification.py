"""Verified reads: which loads are verified, and what is asked about them.

A digest is taken of a layer's part of a block, as its own side's cache layout says, so a read that
took the right bytes to the wrong place, or wrong ones, differs as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

VerifyReads = Literal["off", "sample", "all"]

DIGEST = "crc32"
"""What peers tell each other that they compute."""
SAMPLED_ONE_IN = 16
MOST_BYTES = 8 << 20
"""That one question is about, but for a single block that is larger."""

Blocks = tuple[str, tuple[int, ...]]
"""A layer and some of its blocks."""
Digest = int


@dataclass(frozen=True)
class Piece:
    """One layer's part of some blocks.

    Args:
        layer: by name.
        ours: blocks that were read into.
        theirs: the producer's, as many.
    """

    layer: str
    ours: tuple[int, ...]
    theirs: tuple[int, ...]


Share = list[Piece]
"""What one question is about."""


def is_verified(mode: VerifyReads, transfer_id: str) -> bool:
    """Whether a load is verified; all ranks of an engine agree about it."""
    if mode == "sample":
        return zlib.crc32(transfer_id.encode()) % SAMPLED_ONE_IN == 0
    return mode == "all"


def shares(layers: Iterable[tuple[str, int, Sequence[tuple[int, int]]]]) -> list[Share]:
    """All that a load has read, a limited number of bytes at a time.

    Args:
        layers: for each its name, the bytes of a block, and (our block, the producer's).
    """
    found: list[Share] = []
    left = 0
    for layer, block_bytes, pairs in layers:
        at = 0
        while at < len(pairs):
            if left < block_bytes:
                found.append([])
                left = MOST_BYTES
            taken = pairs[at : at + max(left // block_bytes, 1)]
            ours, theirs = zip(*taken, strict=True)
            found[-1].append(Piece(layer, ours, theirs))
            left -= len(taken) * block_bytes
            at += len(taken)
    return found


def differing(
    share: Share, ours: Sequence[Digest], theirs: Sequence[Digest]
) -> list[tuple[str, int, int]]:
    """Where digests of a share differ: layer, our block, the producer's.

    With other numbers of digests than of blocks nothing can be compared, and all differ.
    """
    places = [
        (piece.layer, mine, other)
        for piece in share
        for mine, other in zip(piece.ours, piece.theirs, strict=True)
    ]
    if not len(places) == len(ours) == len(theirs):
        return places
    return [place for place, mine, other in zip(places, ours, theirs, strict=True) if mine != other]
