"""Reads that are posted at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MOST_READS = 1024  # at once; mori.io's send queues hold 8192
_MOST_BYTES = 1 << 30  # of a batch, whose reads mori.io may merge into one; ports take 2 GiB


@dataclass
class Batch:
    """Reads that go through one session."""

    session: Any
    ours: list[int]
    theirs: list[int]
    sizes: list[int]

    def parts(self) -> Iterator[Batch]:
        """The same reads, few and small enough at a time for the library to post them at once."""
        if sum(self.sizes) > _MOST_BYTES:
            yield from self._small_parts()
            return
        for at in range(0, len(self.sizes), _MOST_READS):
            part = slice(at, at + _MOST_READS)
            yield Batch(self.session, self.ours[part], self.theirs[part], self.sizes[part])

    def _small_parts(self) -> Iterator[Batch]:
        part, num_bytes = Batch(self.session, [], [], []), 0
        for ours, theirs, size in zip(self.ours, self.theirs, self.sizes, strict=True):
            for at in range(0, size, _MOST_BYTES):
                piece = min(size - at, _MOST_BYTES)
                if num_bytes + piece > _MOST_BYTES or len(part.sizes) == _MOST_READS:
                    yield part
                    part, num_bytes = Batch(self.session, [], [], []), 0
                part.ours.append(ours + at)
                part.theirs.append(theirs + at)
                part.sizes.append(piece)
                num_bytes += piece
        yield part
