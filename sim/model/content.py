"""Accountable bytes: what a correct cache holds is a function of the tokens, and invertible.

Every prefix of a request has a 64-bit hash. The cache entry of a token in one KV head of one layer
is a function of the hash of the prefix that ends with the token and of a salt of that head, so
found bytes can be traced back to the prefix they belong to. All arithmetic wraps at 64 bits.

This is about attention entries; the states of recurrent layers are in `sim.model.state_content`.
It neither knows where an entry is stored nor compares anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

EMPTY_PREFIX = 0
"""Hash of no tokens at all."""

_MASK = (1 << 64) - 1
# The multipliers of splitmix64's output function, and its increment (2^64 / golden ratio).
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9
_MULTIPLIER_2 = 0x94D049BB133111EB
_INVERSE_1 = pow(_MULTIPLIER_1, -1, 1 << 64)
_INVERSE_2 = pow(_MULTIPLIER_2, -1, 1 << 64)
_INCREMENT = 0x9E3779B97F4A7C15
_ENTRY_MULTIPLIER = 0xD6E8FEB86659FD93
_ENTRY_INVERSE = pow(_ENTRY_MULTIPLIER, -1, 1 << 64)
WORD_BYTES = 8
WORD_STEP = _INCREMENT
"""From one word of an entry or of a piece of state to the next."""
_ABSURD_POSITION = 1 << 20
_ABSURD_TOKEN = 1 << 24


def prefix_hashes(
    tokens: npt.ArrayLike, start_position: int = 0, previous: int = EMPTY_PREFIX
) -> Hashes:
    """Hashes of the prefixes that end with each of `tokens`.

    Args:
        tokens: token ids, below 2**32.
        start_position: position of the first of them in the request.
        previous: hash of the prefix before them; hashing a request in pieces gives the same
            hashes as hashing it at once.
    """
    ids = np.asarray(tokens, dtype=np.uint64)
    positions = np.arange(start_position, start_position + len(ids), dtype=np.uint64)
    terms = _mix(((positions << np.uint64(32)) | ids) + np.uint64(_INCREMENT))
    sums = np.cumsum(terms, dtype=np.uint64)
    sums += np.uint64(_unmix_int(previous))
    return _mix(sums)


def next_prefix_hash(previous: int, position: int, token: int) -> int:
    """Hash of the prefix that adds `token`, at `position`, to the one with hash `previous`."""
    term = _mix_int((((position << 32) | token) + _INCREMENT) & _MASK)
    return _mix_int((_unmix_int(previous) + term) & _MASK)


def added_token(previous: int, position: int, longer: int) -> int | None:
    """The token whose addition at `position` makes the prefix with hash `longer` of `previous`.

    None if that takes more than a token there. The inverse of `next_prefix_hash`.
    """
    term = (_unmix_int(longer) - _unmix_int(previous)) & _MASK
    found, token = divmod((_unmix_int(term) - _INCREMENT) & _MASK, 1 << 32)
    return token if found == position else None


@dataclass(frozen=True, eq=False)
class EntrySalts:
    """The salts of one layer's KV heads, as one rank caches them."""

    layer: str
    heads: range
    """Model-wide numbers of the heads: ranks that hold the same head hold the same bytes."""
    values: Hashes
    """One salt per head, shape [heads]."""


@cache
def entry_salts(layer: str, heads: range) -> EntrySalts:
    """The salts of `heads` of `layer`; they depend on nothing but the two names."""
    digests = [blake2b(f"{layer}/{head}".encode(), digest_size=8).digest() for head in heads]
    values = np.array([int.from_bytes(d, "little") for d in digests], dtype=np.uint64)
    values.flags.writeable = False
    return EntrySalts(layer, heads, values)


def first_words(hashes: Hashes, salts: Hashes) -> Hashes:
    """The words that contents begin with, shape [len(hashes), len(salts)]."""
    return (hashes[:, None] ^ salts) * np.uint64(_ENTRY_MULTIPLIER)


def hashes_of_words(words: Hashes, salts: Hashes) -> Hashes:
    """The inverse of `first_words`: element by element, so the shapes must fit each other."""
    return (words * np.uint64(_ENTRY_INVERSE)) ^ salts


def entry_words(hashes: Hashes, salts: EntrySalts, words: int) -> Hashes:
    """Entry contents as 64-bit words, shape [len(hashes), heads, words]."""
    first = first_words(hashes, salts.values)
    if words == 1:
        return first[:, :, None]
    steps = np.arange(words, dtype=np.uint64) * np.uint64(WORD_STEP)
    return first[:, :, None] + steps


def entry_bytes(hashes: Hashes, salts: EntrySalts, size: int) -> Bytes:
    """Entry contents, shape [len(hashes), heads, size]; `size` need not be whole words."""
    words = -(-size // WORD_BYTES)
    return as_bytes(entry_words(hashes, salts, words))[:, :, :size]


def as_bytes(words: Hashes) -> Bytes:
    """The same memory, its last axis in bytes (least significant first, whatever the host)."""
    return words.astype("<u8", copy=False).view(np.uint8)


def as_words(entries: Bytes) -> Hashes:
    """The inverse of `as_bytes`; the last axis must be whole words."""
    return np.ascontiguousarray(entries).view("<u8").astype(np.uint64, copy=False)


def recover_hashes(found: Hashes, salts: EntrySalts) -> Hashes:
    """The prefix hashes whose entries begin with the words `found`, shape [n, heads].

    Any word gives some hash: whether it is a real one shows in the rest of the entry, or in that
    the hash is known.
    """
    return hashes_of_words(found, salts.values)


def extend_each_other(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """For each neighbouring pair, whether the second prefix is the first plus one token.

    The token and its position follow from the two hashes, and are absurd for unrelated ones.
    """
    terms = np.diff(_unmix(hashes.copy()))
    added = _unmix(terms) - np.uint64(_INCREMENT)
    positions, tokens = added >> np.uint64(32), added & np.uint64(0xFFFFFFFF)
    return (positions < _ABSURD_POSITION) & (tokens < _ABSURD_TOKEN)


def next_token(prefix_hash: int, deviation: int, vocab_size: int, reserved: int = 16) -> int:
    """The token that follows a prefix.

    Args:
        prefix_hash: hash of the prefix.
        deviation: 0 if everything the forward pass read was right, else a digest of what it read;
            the token then differs from the right one for certain.
        vocab_size: tokens are below it.
        reserved: tokens below it are never produced (padding, end of sequence, ...).
    """
    choices = vocab_size - reserved
    choice = _mix_int(prefix_hash ^ _INCREMENT) % choices
    if deviation:
        choice = (choice + 1 + _mix_int(deviation) % (choices - 1)) % choices
    return reserved + choice


def mixed(value: int) -> int:
    """64 bits that look like chance, and are a function of ``value``."""
    return _mix_int(value & _MASK)


def _mix(x: Hashes) -> Hashes:
    """splitmix64's output function, a bijection that scatters nearby values; overwrites `x`."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(_MULTIPLIER_1)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_MULTIPLIER_2)
    x ^= x >> np.uint64(31)
    return x


def _unmix(x: Hashes) -> Hashes:
    """The inverse of `_mix`; overwrites `x`."""
    x ^= (x >> np.uint64(31)) ^ (x >> np.uint64(62))
    x *= np.uint64(_INVERSE_2)
    x ^= (x >> np.uint64(27)) ^ (x >> np.uint64(54))
    x *= np.uint64(_INVERSE_1)
    x ^= (x >> np.uint64(30)) ^ (x >> np.uint64(60))
    return x


def _mix_int(x: int) -> int:
    x = ((x ^ (x >> 30)) * _MULTIPLIER_1) & _MASK
    x = ((x ^ (x >> 27)) * _MULTIPLIER_2) & _MASK
    return x ^ (x >> 31)


def _unmix_int(x: int) -> int:
    x = (_unshift_xor(x, 31) * _INVERSE_2) & _MASK
    x = (_unshift_xor(x, 27) * _INVERSE_1) & _MASK
    return _unshift_xor(x, 30)


def _unshift_xor(x: int, shift: int) -> int:
    """Invert ``x ^ (x >> shift)`` for shifts of at least a third of the 64 bits."""
    return x ^ (x >> shift) ^ (x >> 2 * shift)
