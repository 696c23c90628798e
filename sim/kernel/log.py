"""The record of a run: what happened, when, where, and a hash over all of it.

Two things enter the hash: every record, and every switch to a task (time and task number).
Equal hashes therefore mean equal histories, also in the parts that nobody wrote a record for.
Fields must be plain values (str, int, float, bool, None, bytes, lists and dicts of them) whose
order is deterministic; that is the caller's duty.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

import msgspec

_FLUSH_EVERY = 4096


class Record(NamedTuple):
    """One thing that happened. ``actor`` is ``node/process/task`` or the hardware's name."""

    time_ns: int
    actor: str
    kind: str
    fields: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"t_ns": self.time_ns, "actor": self.actor, "kind": self.kind, **self.fields}


class EventLog:
    """Append-only; observers see each record as it is made, in order of subscription."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.switches = 0
        self._observers: list[Callable[[Record], None]] = []
        self._encoder = msgspec.json.Encoder()
        self._record_hash = hashlib.blake2b(digest_size=16)
        self._switch_hash = hashlib.blake2b(digest_size=16)
        self._pending_records: list[bytes] = []
        self._pending_switches = array("q")
        self.closed = False

    def subscribe(self, observer: Callable[[Record], None]) -> None:
        self._observers.append(observer)

    def append(self, time_ns: int, actor: str, kind: str, fields: dict[str, Any]) -> None:
        if self.closed:  # a killed task that unwinds after the run has no effect outside
            return
        record = Record(time_ns, actor, kind, fields)
        self.records.append(record)
        self._pending_records.append(self._encoder.encode((time_ns, actor, kind, fields)))
        if len(self._pending_records) >= _FLUSH_EVERY:
            self._flush_records()
        for observer in self._observers:
            observer(record)

    def switched(self, time_ns: int, task_number: int) -> None:
        self.switches += 1
        self._pending_switches.append(time_ns)
        self._pending_switches.append(task_number)
        if len(self._pending_switches) >= _FLUSH_EVERY:
            self._flush_switches()

    def close(self) -> None:
        self.closed = True
        self._observers.clear()  # whoever keeps the log need not keep the world

    def digest(self) -> str:
        """Hash of everything so far, as 32 hexadecimal digits."""
        self._flush_records()
        self._flush_switches()
        both = self._record_hash.digest() + self._switch_hash.digest()
        return hashlib.blake2b(both, digest_size=16).hexdigest()

    def write_jsonl(self, file: IO[bytes]) -> None:
        for line in self._lines():
            file.write(line)
            file.write(b"\n")

    def _lines(self) -> Iterator[bytes]:
        return (self._encoder.encode(record.as_dict()) for record in self.records)

    def _flush_records(self) -> None:
        self._record_hash.update(b"\n".join(self._pending_records))
        self._pending_records.clear()

    def _flush_switches(self) -> None:
        self._switch_hash.update(self._pending_switches.tobytes())
        del self._pending_switches[:]
