"""Reader of Mooncake traces: JSON lines with prefix block hashes.

Each line is an object with ``timestamp`` (ms), ``input_length``, ``output_length`` (tokens) and
``hash_ids``, one id for every block of 512 prompt tokens, the last one partial. Equal ids mean
equal tokens. Without ``hash_ids`` a prompt shares nothing; other keys are ignored. The format is
that of "Mooncake: Trading More Storage for Less Computation" (Qin et al., FAST 2025).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeGuard

import msgspec

from sim.units import MS
from sim.workload.records import TraceError, TraceRecord, shown, unique_content
from sim.workload.request import Segment

BLOCK_TOKENS: Final = 512
_KEYS: Final = "timestamp, input_length, output_length and, optionally, hash_ids"


def read_mooncake(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[TraceRecord]:
    """Records of the numbered ``lines``; ``path`` is for messages only. Raises TraceError."""
    for number, line in lines:
        row = _Row(path, number, line)
        input_tokens = row.integer("input_length", minimum=1)
        yield TraceRecord(
            timestamp_ns=row.timestamp_ns(),
            prompt=row.prompt(input_tokens),
            output_tokens=row.integer("output_length", minimum=1),
        )


class _Row:
    """One decoded line, and the place that its errors name."""

    def __init__(self, path: str, number: int, line: str) -> None:
        self._path = path
        self._number = number
        try:
            fields = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise self._error(
                f"{shown(line)} is not valid JSON ({error}); expected an object with {_KEYS}"
            ) from error
        if not isinstance(fields, dict):
            raise self._error(f"{shown(fields)} is not an object; expected one with {_KEYS}")
        self._fields = fields

    def timestamp_ns(self) -> int:
        value = self._value("timestamp")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise self._error(f"timestamp is {shown(value)}, must be milliseconds, 0 or more")
        return round(value * MS)

    def integer(self, key: str, *, minimum: int) -> int:
        value = self._value(key)
        if not _is_integer(value) or value < minimum:
            raise self._error(f"{key} is {shown(value)}, must be an integer, {minimum} or more")
        return int(value)

    def prompt(self, input_tokens: int) -> tuple[Segment, ...]:
        if "hash_ids" not in self._fields:
            return (Segment(unique_content(self._number), input_tokens),)
        hash_ids = self._hash_ids()
        blocks = -(-input_tokens // BLOCK_TOKENS)
        if len(hash_ids) != blocks:
            raise self._error(
                f"hash_ids has {len(hash_ids)} entries, but input_length {input_tokens} needs "
                f"{blocks}, one for every {BLOCK_TOKENS} tokens"
            )
        last = input_tokens - (blocks - 1) * BLOCK_TOKENS
        full = (Segment(hash_id, BLOCK_TOKENS) for hash_id in hash_ids[:-1])
        return (*full, Segment(hash_ids[-1], last))

    def _hash_ids(self) -> list[int]:
        value = self._value("hash_ids")
        if not isinstance(value, list):
            raise self._error(f"hash_ids is {shown(value)}, must be a list of integers")
        for hash_id in value:
            if not _is_integer(hash_id) or hash_id < 0:
                raise self._error(f"hash_ids holds {shown(hash_id)}, must be integers, 0 or more")
        return value

    def _value(self, key: str) -> object:
        if key not in self._fields:
            present = ", ".join(map(str, self._fields)) or "none"
            raise self._error(f"key {key!r} is missing (keys here: {present}); expected {_KEYS}")
        return self._fields[key]

    def _error(self, problem: str) -> TraceError:
        return TraceError(self._path, self._number, problem)


def _is_integer(value: object) -> TypeGuard[int]:
    # JSON's true is an int to Python, but not a count.
    return isinstance(value, int) and not isinstance(value, bool)
