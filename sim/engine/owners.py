"""Whose bytes are these? Finds the request that a prefix hash belongs to.

Prompts are indexed when the first question comes, which in most runs is never. Tokens that were
generated are looked up in the streams of the requests that were scheduled most recently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from sim.model.content import Hashes, prefix_hashes
from sim.model.token_stream import TokenStream

_MAX_INDEXED_TOKENS = 40_000_000  # half a GiB of index
_RECENT_STREAMS = 256

Prompts = Callable[[], Iterable[tuple[str, npt.NDArray[np.int32]]]]


class HashOwners:
    """Requests by prefix hash.

    Args:
        prompts: gives (request id, prompt token ids) of every request of the workload.
    """

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._names: list[str] = []
        self._index: tuple[Hashes, npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        self._recent: deque[tuple[str, TokenStream]] = deque(maxlen=_RECENT_STREAMS)

    def scheduled(self, request_id: str, stream: TokenStream) -> None:
        """An engine began to work on a request; its stream will grow."""
        self._recent.append((request_id, stream))

    def find(self, prefix_hash: int) -> tuple[str, int] | None:
        """The request and the token position that the hash belongs to, or None.

        When requests share the prefix, the first of the workload is named.
        """
        if self._index is None:
            self._index = self._build()
        hashes, owners, positions = self._index
        place = int(np.searchsorted(hashes, np.uint64(prefix_hash)))
        if place < len(hashes) and int(hashes[place]) == prefix_hash:
            return self._names[int(owners[place])], int(positions[place])
        for name, stream in reversed(self._recent):
            found = np.flatnonzero(stream.hashes == np.uint64(prefix_hash))
            if len(found):
                return name, int(found[0])
        return None

    def _build(self) -> tuple[Hashes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        parts: list[Hashes] = []
        total = 0
        for name, tokens in self._prompts():
            total += len(tokens)
            if total > _MAX_INDEXED_TOKENS:
                break
            self._names.append(name)
            parts.append(prefix_hashes(tokens))
        lengths = [len(part) for part in parts]
        hashes = np.concatenate([np.empty(0, dtype=np.uint64), *parts])
        owners = np.repeat(np.arange(len(parts)), lengths)
        positions = np.concatenate([np.empty(0, dtype=np.int64), *map(np.arange, lengths)])
        order = np.argsort(hashes, kind="stable")
        return hashes[order], owners[order], positions[order]
