"""The tokens of one request and the hashes of its prefixes, growing one token at a time."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sim.model.content import EMPTY_PREFIX, Hashes, next_prefix_hash, prefix_hashes

Tokens = npt.NDArray[np.int32]


class TokenStream:
    """Prompt and output of one request. Appending costs amortised constant time."""

    def __init__(self, tokens: npt.ArrayLike = ()) -> None:
        self._length = 0
        self._tokens: Tokens = np.empty(0, dtype=np.int32)
        self._hashes: Hashes = np.empty(0, dtype=np.uint64)
        self.extend(tokens)

    def __len__(self) -> int:
        return self._length

    @property
    def tokens(self) -> Tokens:
        """Token ids, read-only; a view that later appends do not change."""
        return _read_only(self._tokens[: self._length])

    @property
    def hashes(self) -> Hashes:
        """``hashes[i]`` is the hash of tokens 0 to i; read-only like `tokens`."""
        return _read_only(self._hashes[: self._length])

    def prefix_hash(self, length: int) -> int:
        """Hash of the first `length` tokens."""
        if not 0 <= length <= self._length:
            raise IndexError(f"prefix of {length} tokens of a stream that has {self._length}")
        return int(self._hashes[length - 1]) if length else EMPTY_PREFIX

    def append(self, token: int) -> None:
        """Add one token; much cheaper than `extend` with one."""
        position = self._length
        prefix_hash = next_prefix_hash(self.prefix_hash(position), position, token)
        self._reserve(position + 1)
        self._tokens[position] = token
        self._hashes[position] = prefix_hash
        self._length = position + 1

    def first(self, length: int) -> TokenStream:
        """A stream of its own with the first `length` tokens."""
        assert length <= self._length, f"{length} > {self._length}"
        stream = TokenStream()
        stream._tokens = self._tokens[:length].copy()
        stream._hashes = self._hashes[:length].copy()
        stream._length = length
        return stream

    def extend(self, tokens: npt.ArrayLike) -> None:
        """Add tokens at the end."""
        added = np.asarray(tokens, dtype=np.int32)
        start, end = self._length, self._length + len(added)
        self._reserve(end)
        self._tokens[start:end] = added
        self._hashes[start:end] = prefix_hashes(added, start, self.prefix_hash(start))
        self._length = end

    def _reserve(self, length: int) -> None:
        if length <= len(self._tokens):
            return
        capacity = max(length, 2 * len(self._tokens), 16)
        # New arrays rather than resized ones, because views of the old ones are out there.
        tokens, hashes = self._tokens, self._hashes
        self._tokens = np.empty(capacity, dtype=np.int32)
        self._hashes = np.empty(capacity, dtype=np.uint64)
        self._tokens[: self._length] = tokens[: self._length]
        self._hashes[: self._length] = hashes[: self._length]


_Array = TypeVar("_Array", bound=npt.NDArray[Any])


def _read_only(view: _Array) -> _Array:
    view.flags.writeable = False
    return view
