"""Cutting long work requests into chunks, so that one transfer keeps several queue pairs busy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.fabric.memory import Offsets
from sim.fabric.work import Segments


@dataclass(frozen=True, slots=True)
class Chunking:
    """How long a chunk is to be, how many a work request may become, and the port's limit."""

    chunk_bytes: int
    max_chunks: int
    max_message_bytes: int

    def chunk_length(self, total: int) -> int:
        """Equal chunks: as many as ``chunk_bytes`` asks for, within the two limits."""
        wanted = min(-(-total // self.chunk_bytes), self.max_chunks)
        count = max(wanted, -(-total // self.max_message_bytes), 1)
        return -(-total // count)

    def apply(self, segments: Segments) -> Segments:
        """Cut every work request that has a segment longer than a chunk; leave the others."""
        firsts = segments.first_segments
        is_long = (np.maximum.reduceat(segments.sizes, firsts) > self.chunk_bytes) | (
            np.add.reduceat(segments.sizes, firsts) > self.max_message_bytes
        )
        if not is_long.any():
            return segments
        parts = [
            self._cut(part) if cut else part
            for part, cut in zip(_work_requests(segments), is_long.tolist(), strict=True)
        ]
        return _joined(parts)

    def _cut(self, work_request: Segments) -> Segments:
        """A chunk does not cross a segment, so a segment's last one may be shorter."""
        length = self.chunk_length(work_request.total_bytes)
        rows: list[tuple[int, int, int]] = []
        room = length
        columns = (work_request.local_offsets, work_request.remote_offsets, work_request.sizes)
        for local, remote, left in zip(*(column.tolist() for column in columns), strict=True):
            while left:
                taken = min(room, left)
                rows.append((local, remote, taken))
                local, remote, left, room = (
                    local + taken,
                    remote + taken,
                    left - taken,
                    room - taken,
                )
                room = room or length
        local_offsets, remote_offsets, sizes = np.array(rows, np.int64).T
        return Segments(local_offsets, remote_offsets, sizes, np.arange(len(rows)))


def _work_requests(segments: Segments) -> list[Segments]:
    return [segments.slice(w, w + 1) for w in range(segments.work_requests)]


def _joined(parts: list[Segments]) -> Segments:
    starts = np.cumsum([0, *(len(part.sizes) for part in parts)])
    firsts = [part.first_segments + start for part, start in zip(parts, starts, strict=False)]

    def column(name: str) -> Offsets:
        return np.concatenate([getattr(part, name) for part in parts])

    return Segments(
        column("local_offsets"), column("remote_offsets"), column("sizes"), np.concatenate(firsts)
    )
