"""Counting the releases of one producer rank: every reader once."""

from __future__ import annotations


class ReleaseCount:
    """Which readers of a hold are done.

    Upstream's release carries no rank, so releases of upstream peers are counted; ours name the
    reader, and a repetition changes nothing.
    """

    def __init__(self) -> None:
        self._named: dict[int, None] = {}
        self._unnamed = 0

    def add(self, reader: int | None, *, num_readers: int) -> bool:
        """Count a release; True when the last of ``num_readers`` is done.

        Args:
            reader: tensor-parallel rank of the consumer; None if the message does not tell.
            num_readers: consumer ranks that have to release this rank.
        """
        if reader is None:
            self._unnamed += 1
        else:
            self._named[reader] = None
        return len(self._named) + self._unnamed >= num_readers
