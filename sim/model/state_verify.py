"""Compares the states that recurrent layers hold with the right ones, and says what was found.

Nothing here knows requests, engines or faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from sim.model.content import WORD_BYTES, Bytes, Hashes
from sim.model.state_content import (
    StateSalts,
    recover_state_hashes,
    state_bytes,
    tensor_ranges,
)
from sim.model.verify import (
    SAMPLE_BYTES,
    Flags,
    FoundKind,
    Integers,
    is_known,
    nobodys_bytes,
    wide,
)


@dataclass(frozen=True)
class FoundState:
    """What the wrong pieces of a state hold."""

    kind: FoundKind
    sample: bytes
    """The first bytes of the first wrong piece."""
    prefix_hash: int | None = None
    """Of an "entry": hash of the prefix whose right state these pieces are from."""
    layer: str | None = None
    """Of an "entry": the layer in which they would be right."""
    place: str | None = None
    """Of an "entry" in the wrong place: what it is, as in ``conv value of head 3``."""


@dataclass(frozen=True)
class StateMismatch:
    """A state of one layer that is not the right one."""

    index: int
    """Which of the states that were asked for."""
    layer: str
    block_id: int
    wrong_bytes: int
    wrong_parts: tuple[str, ...]
    """The parts with wrong bytes, as in ``conv key``; all of the state if it is all of them."""
    content: FoundState
    digest: int
    """Of all the bytes that were read, never 0; an input of `content.next_token`."""

    @property
    def found_hash(self) -> int | None:
        """Hash of the prefix that the found state belongs to, if it is one."""
        return self.content.prefix_hash

    @property
    def found(self) -> str:
        """What was found, in words."""
        content = self.content
        if content.kind != "entry":
            return nobodys_bytes(content.kind, content.sample)
        layer = "" if content.layer == self.layer else f" in {content.layer}"
        place = f", {content.place}" if content.place else ""
        return f"the state after prefix {content.prefix_hash:016x}{layer}{place}"


@dataclass(frozen=True, eq=False)
class StateCandidates:
    """What wrong bytes may turn out to be."""

    salts: Sequence[StateSalts] = ()
    """Of other layers, and of other ranks."""
    known_hashes: Hashes | None = None
    """All prefix hashes there are, sorted. Without them a piece that is moved alone counts as one
    of its new place, because a single piece could belong anywhere."""


_OWN_LAYER_ONLY = StateCandidates()


def find_state_mismatches(
    states: Bytes,
    salts: StateSalts,
    block_ids: Sequence[int] | Integers,
    hashes: Hashes,
    *,
    candidates: StateCandidates = _OWN_LAYER_ONLY,
) -> list[StateMismatch]:
    """The wrong ones of many states of one layer, one of each request for example.

    Args:
        states: the layer's memory, [blocks, bytes of a state].
        salts: of the layer on this rank.
        block_ids: of the states.
        hashes: of the prefixes whose states they should be.
        candidates: helps to name what was found.
    """
    blocks = np.asarray(block_ids, dtype=np.int64)
    found: Bytes = states[blocks]
    expected = state_bytes(hashes, salts)
    if np.array_equal(wide(found), wide(expected)):
        return []
    return [
        _mismatch(index, int(blocks[index]), found[index], expected[index], salts, candidates)
        for index in np.flatnonzero((found != expected).any(axis=1)).tolist()
    ]


def _mismatch(
    index: int,
    block_id: int,
    found: Bytes,
    expected: Bytes,
    salts: StateSalts,
    candidates: StateCandidates,
) -> StateMismatch:
    differs = found != expected
    wrong = np.add.reduceat(differs, salts.starts[:-1], dtype=np.int64) > 0
    of_pieces = zip(salts.pieces, wrong.tolist(), strict=True)
    parts = dict.fromkeys(f"{p.tensor} {p.part}" for p, is_wrong in of_pieces if is_wrong)
    digest = blake2b(f"{salts.layer}/state/".encode(), digest_size=8)
    digest.update(found.tobytes())
    return StateMismatch(
        index=index,
        layer=salts.layer,
        block_id=block_id,
        wrong_bytes=int(differs.sum()),
        wrong_parts=tuple(parts),
        content=_identify(found, wrong, salts, candidates),
        digest=int.from_bytes(digest.digest(), "little") | 1,
    )


def _identify(
    found: Bytes, wrong: Flags, salts: StateSalts, candidates: StateCandidates
) -> FoundState:
    first = int(np.flatnonzero(wrong)[0])
    start = int(salts.starts[first])
    sample = found[start:][:SAMPLE_BYTES].tobytes()
    is_wrong_byte = np.repeat(wrong, np.diff(salts.starts))
    if not found[is_wrong_byte].any():
        return FoundState("zeros", sample)
    known = candidates.known_hashes
    for other in (salts, *candidates.salts):
        if other.size == salts.size:
            hashes = _hash_at(found, start, other.values[first : first + 1])
            if is_known(hashes, known)[0]:
                right = state_bytes(hashes, other)[0]
                if np.array_equal(found[is_wrong_byte], right[is_wrong_byte]):
                    return FoundState("entry", sample, int(hashes[0]), other.layer)
    stop = start + _run_length(is_wrong_byte[start:])
    for other in (salts, *candidates.salts):
        for prefix_hash, place in _moved(found[start:stop], other, known):
            return FoundState("entry", sample, prefix_hash, other.layer, place)
    return FoundState("unknown", sample)


def _moved(run: Bytes, salts: StateSalts, known: Hashes | None) -> Iterator[tuple[int, str]]:
    """The pieces of a state that ``run`` begins with, to the end of their tensor or of the run.

    Prefix hash and name of the place; what no second piece confirms is left out.
    """
    if len(run) < WORD_BYTES:
        return
    hashes = _hash_at(run, 0, salts.values)
    ends = {tensor: r.stop for tensor, r in tensor_ranges(salts.pieces).items()}
    for number in np.flatnonzero(is_known(hashes, known)).tolist():
        piece, start = salts.pieces[number], int(salts.starts[number])
        length = min(len(run), ends[piece.tensor] - start)
        if length < piece.size + WORD_BYTES:
            continue
        right = state_bytes(hashes[number : number + 1], salts)[0, start : start + length]
        if np.array_equal(run[:length], right):
            yield int(hashes[number]), f"{piece.tensor} {piece.part} of head {piece.head}"


def _hash_at(found: Bytes, start: int, salts: Hashes) -> Hashes:
    """The prefix hashes that the word at ``start`` belongs to, one for each of the salts."""
    word = found[start : start + WORD_BYTES]
    if len(word) < WORD_BYTES:
        return np.zeros(len(salts), dtype=np.uint64)
    return recover_state_hashes(np.broadcast_to(word, (len(salts), WORD_BYTES)), salts)


def _run_length(flags: npt.NDArray[np.bool_]) -> int:
    """Number of true values that ``flags`` begins with."""
    gaps = np.flatnonzero(~flags)
    return int(gaps[0]) if len(gaps) else len(flags)
